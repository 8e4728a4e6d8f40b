/* dlpack_import.h: Arrays from foreign DLPack tensors.
 *
 * Rule:    a foreign tensor is checked before it is taken, taken by renaming its capsule, and
 *          from then on deleted exactly once.
 * Threads: the GIL is held; released while copying.
 * Failure: NULL with BufferError, CopyRequiredError, MemoryError or MetalError, whose sentence
 *          names `maker`, the producer's type.
 */
#ifndef MD_DLPACK_IMPORT_H
#define MD_DLPACK_IMPORT_H

#include <dlpack/dlpack.h>

#include "exchange/import_request.h"

/* An Array of a capsule's tensor: owned (+1).  A capsule that is refused stays unconsumed. */
PyObject *dlpack_import_capsule(md_state *state, PyObject *capsule, const char *maker,
                                const import_request *request);

/* An Array of a tensor that the caller owns: steals it, even if it is refused. */
PyObject *dlpack_import_managed(md_state *state, DLManagedTensorVersioned *managed,
                                const char *maker, const import_request *request);

/* Run the deleter of a foreign tensor.  The deleter may run Python code: an exception that
 * is set is kept from it and stays set. */
void dlpack_delete_foreign(void *managed, bool is_versioned);

/* An Array of our own Array's items, without a tensor in between. */
PyObject *dlpack_import_array(PyObject *array, const import_request *request);

#endif /* MD_DLPACK_IMPORT_H */
