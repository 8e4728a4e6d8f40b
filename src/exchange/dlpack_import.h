/* dlpack_import.h: Arrays from foreign DLPack tensors; from_dlpack.
 *
 * Threads: the GIL is held, and the producer's code runs with it; released while copying.
 * Failure: NULL with BufferError, CopyRequiredError, MemoryError or MetalError, whose sentence
 *          names the producer's type.
 */
#ifndef MD_DLPACK_IMPORT_H
#define MD_DLPACK_IMPORT_H

#include <dlpack/dlpack.h>

#include "exchange/foreign_tensor.h"

/* An Array of a producer's or a capsule's data: owned (+1).  NULL also with AttributeError (no
 * producer), or what the producer raised.  A capsule that is refused stays unconsumed. */
PyObject *dlpack_import(md_state *state, PyObject *producer, const import_request *request);

/* An Array of a tensor that the caller owns: steals it, even if it is refused.  `maker`: its
 * producer, for messages. */
PyObject *dlpack_import_managed(DLManagedTensorVersioned *managed, const char *maker,
                                const import_request *request);

/* An Array of our own Array's items, without a tensor in between. */
PyObject *dlpack_import_array(PyObject *array, const import_request *request);

/* 'cpu', as a `device` argument; NULL is allowed. */
bool dlpack_is_cpu_name(PyObject *value);

extern PyMethodDef dlpack_import_functions[];

#endif /* MD_DLPACK_IMPORT_H */
