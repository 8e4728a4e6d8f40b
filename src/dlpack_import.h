/* dlpack_import.h: Arrays from DLPack capsules and from whatever makes them.
 *
 * Rule:    a foreign tensor is checked before it is taken, taken by renaming its capsule, and from then on
 *          deleted exactly once.
 * Threads: the GIL is held; released while copying.
 */
#ifndef MD_DLPACK_IMPORT_H
#define MD_DLPACK_IMPORT_H

#include "array.h"

typedef struct import_request {
    const device_record *device; /* NULL: where the data is; the default device for CPU data */
    int copy;                    /* -1: if needed, 0: never, 1: always */
} import_request;

/* True if the type of `op` has __dlpack__, or `op` is a capsule. */
bool dlpack_is_producer(md_state *state, PyObject *op);

/* An Array of a producer's or a capsule's data: owned (+1).  NULL with BufferError,
 * CopyRequiredError, TypeError, AttributeError, MemoryError, MetalError, or what the producer raised;
 * a capsule that is refused stays its owner's. */
PyObject *dlpack_import(md_state *state, PyObject *producer, const import_request *request);

/* CPU memory as an Array, shared where Metal can, else copied if the request allows.  `owner` is kept
 * alive (a new reference is taken) while the memory is used.  `address` is that of element 0. */
PyObject *dlpack_import_memory(md_state *state, const char *function, char *address,
                               const strided_layout *layout, DLDataType dtype, bool is_readonly,
                               PyObject *owner, const import_request *request);

extern PyMethodDef dlpack_import_functions[];

#endif /* MD_DLPACK_IMPORT_H */
