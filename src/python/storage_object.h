/* storage_object.h: how an Array begins.  A floor below array/ looks at its storage, and at
 * nothing else of it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STORAGE_OBJECT_H
#define MD_STORAGE_OBJECT_H

#include "metal/storage_record.h"
#include "python/state.h"

typedef struct {
    PyObject_VAR_HEAD
    metal_storage *storage;
} StorageObject;

/* Borrowed from an Array. */
static inline metal_storage *
storage_of_object(PyObject *op)
{
    return ((StorageObject *)op)->storage;
}

#endif /* MD_STORAGE_OBJECT_H */
