/* dtype_type_names.h: what names an element type. */
#ifndef MD_DTYPE_TYPE_NAMES_H
#define MD_DTYPE_TYPE_NAMES_H

#include "values/dtype_object.h"

/* Anything that names an element type: our dtype, a str ("float32", "<f4"), a NumPy dtype
 * or scalar type, a torch or MLX dtype, Python's bool, int, float, complex.  -1 with TypeError
 * (not a dtype) or ValueError (non-native byte order), both naming `function`. */
int dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out);

/* Is `value` another way to say `dtype` that `==` takes?  1, 0, or -1 with an exception.
 * A str: the name, and no other text, so that equal things have equal hashes.  Python's bool
 * and int, which are the same to everybody; not float and complex, which NumPy takes for
 * float64 and complex128.  Dtypes and scalar types of other packages. */
int dtype_type_is_named(DLDataType dtype, PyObject *value);

#endif /* MD_DTYPE_TYPE_NAMES_H */
