/* dtype_type.h: the Python type `dtype`, one DLDataType as an object.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_DTYPE_TYPE_H
#define MD_DTYPE_TYPE_H

#include "arithmetic/dtype.h"
#include "python/state.h"
#include "values/dtype_object.h"
#include "values/dtype_type_names.h"

/* Fills state->dtype_cache and adds float32, int4, ... to the module.  0, or -1. */
int dtype_type_add_names(PyObject *module, md_state *state);

/* The object of a known type: owned (+1), the same object each time for lanes 1. */
PyObject *dtype_type_from_dl(md_state *state, DLDataType dtype);

#endif /* MD_DTYPE_TYPE_H */
