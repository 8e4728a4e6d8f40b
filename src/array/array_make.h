/* array_make.h: the functions of the module that make Arrays.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_ARRAY_MAKE_H
#define MD_ARRAY_MAKE_H

#include "exchange/host_memory.h"
#include "python/state.h"

/* array_asarray.c: anything as an Array: owned (+1), or NULL with what asarray raises.  See core_asarray. */
PyObject *array_make_of(md_state *state, PyObject *x, const import_request *request);

extern PyMethodDef array_make_functions[];    /* array_make.c */
extern PyMethodDef array_asarray_functions[]; /* array_asarray.c */

#endif /* MD_ARRAY_MAKE_H */
