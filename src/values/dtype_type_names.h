/* dtype_type_names.h: what names an element type. */
#ifndef MD_DTYPE_TYPE_NAMES_H
#define MD_DTYPE_TYPE_NAMES_H

#include "values/dtype_object.h"

/* Anything that names an element type: our dtype, a str ("float32", "bfloat16"), a NumPy dtype
 * or scalar type, a torch or MLX dtype, Python's bool, int, float, complex.  -1 with TypeError
 * (not a dtype) or ValueError (non-native byte order), both naming `function`. */
int dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out);

#endif /* MD_DTYPE_TYPE_NAMES_H */
