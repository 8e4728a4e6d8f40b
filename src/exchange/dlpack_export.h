/* dlpack_export.h: Arrays as DLPack capsules.
 *
 * Threads: the GIL is held; released while waiting and copying.
 */
#ifndef MD_DLPACK_EXPORT_H
#define MD_DLPACK_EXPORT_H

#include <dlpack/dlpack.h>

#include "array/array.h"
#include "exchange/dlpack_check.h"
#include "streams/stream_object.h"

/* What a consumer asked for. */
typedef struct export_request {
    bool is_versioned;
    DLDeviceType device; /* kDLMetal or kDLCPU */
    int copy;            /* -1: if needed, 0: never, 1: always */
    stream_order order;  /* who waits for our work in flight; a CPU export always waits */
} export_request;

/* Does something keep the memory itself from going out?  `*reason`, if so: COPY_..., or
 * REFUSED_READONLY. */
bool dlpack_export_reason(const ArrayObject *self, DLDeviceType device, bool is_versioned,
                          dlpack_fault *reason);

/* A managed tensor (DLManagedTensor or DLManagedTensorVersioned, as asked): owned, ended by its
 * deleter.  NULL with BufferError, CopyRequiredError, MemoryError or MetalError. */
void *dlpack_export(ArrayObject *self, const export_request *request);

/* The tensor itself, borrowed from the Array: valid as long as that lives; nothing is
 * allocated.  -1 with BufferError where only a copy could be handed out. */
int dlpack_export_borrowed(ArrayObject *self, DLTensor *out);

/* __dlpack__ with its keywords parsed; `device` where dl_device is None. */
PyObject *dlpack_export_call(ArrayObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames, DLDeviceType device);

/* exchange_table.c: put __dlpack_c_exchange_api__ on the Array type.  0, or -1 with an
 * exception. */
int exchange_table_add(md_state *state);

#endif /* MD_DLPACK_EXPORT_H */
