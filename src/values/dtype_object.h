/* dtype_object.h: the dtype object, apart from its methods. */
#ifndef MD_DTYPE_OBJECT_H
#define MD_DTYPE_OBJECT_H

#include "arithmetic/dtype.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    DLDataType dtype; /* known: dtype_is_known */
    Py_hash_t hash;   /* the name's: a dtype equals its name */
} DtypeObject;

/* What `op`, a dtype of ours, stands for. */
static inline DLDataType
dtype_of(PyObject *op)
{
    return ((DtypeObject *)op)->dtype;
}

#endif /* MD_DTYPE_OBJECT_H */
