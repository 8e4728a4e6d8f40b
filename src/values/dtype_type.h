/* dtype_type.h: the Python type `dtype`, one DLDataType as an object.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_DTYPE_TYPE_H
#define MD_DTYPE_TYPE_H

#include "arithmetic/dtype.h"
#include "python/state.h"

/* Fills state->dtype_cache and adds float32, int4, ... to the module.  0, or -1. */
int dtype_type_add_names(PyObject *module, md_state *state);

/* The object of a known type: owned (+1), the same object each time for lanes 1. */
PyObject *dtype_type_from_dl(md_state *state, DLDataType dtype);

/* Anything that names an element type: our dtype, a str ("float32", "bfloat16"), a NumPy dtype or
 * scalar type, a torch or MLX dtype, Python's bool, int, float, complex.  -1 with TypeError (not a
 * dtype) or ValueError (non-native byte order), both naming `function`. */
int dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out);

/* What `op`, a dtype of ours, stands for. */
DLDataType dtype_type_get(PyObject *op);

#endif /* MD_DTYPE_TYPE_H */
