/* dtype_type.h: the Python type `dtype`, one DLDataType as an object.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_DTYPE_TYPE_H
#define MD_DTYPE_TYPE_H

#include "arithmetic/dtype.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    DLDataType dtype;              /* known: dtype_is_known */
    Py_hash_t hash;                /* the name's: a dtype equals its name */
    long long itemsize, alignment; /* for Python */
} DtypeObject;

/* What `op`, our dtype, stands for. */
static inline DLDataType
dtype_of(PyObject *op)
{
    return ((DtypeObject *)op)->dtype;
}

/* Fills state->dtype_cache and adds float32, int4, ... to the module.  0, or -1. */
int dtype_type_add_names(PyObject *module, md_state *state);

/* The object of a known type: owned (+1), the same object each time for lanes 1. */
PyObject *dtype_type_from_dl(md_state *state, DLDataType dtype);

/* ---- what names an element type: dtype_type_names.c ---- */

/* Anything that names an element type: our dtype, a str ("float32", "<f4"), a NumPy dtype
 * or scalar type, a torch or MLX dtype, Python's bool, int, float, complex.  -1 with TypeError
 * (not a dtype) or ValueError (non-native byte order), both naming `function`. */
int dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out);

/* Is `value` another way to say `dtype` that `==` takes?  1, 0, or -1 with an exception.
 * A str: the name, and no other text, so that equal things have equal hashes.  Python's bool,
 * int, float and complex.  Dtypes and scalar types of other packages. */
int dtype_type_is_named(DLDataType dtype, PyObject *value);

#endif /* MD_DTYPE_TYPE_H */
