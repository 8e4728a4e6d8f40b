/* array_asarray.h: anything as an Array. */
#ifndef MD_ARRAY_ASARRAY_H
#define MD_ARRAY_ASARRAY_H

#include "exchange/host_memory.h"
#include "python/state.h"

/* Owned (+1), or NULL with what asarray raises.  See core_asarray. */
PyObject *array_make_of(md_state *state, PyObject *x, const import_request *request);

extern PyMethodDef array_asarray_functions[];

#endif /* MD_ARRAY_ASARRAY_H */
