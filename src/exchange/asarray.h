/* asarray.h: anything as an Array. */
#ifndef MD_ASARRAY_H
#define MD_ASARRAY_H

#include "exchange/import_request.h"
#include "python/state.h"

/* Owned (+1), or NULL with what asarray raises.  See core_asarray. */
PyObject *asarray_import(md_state *state, PyObject *x, const import_request *request);

extern PyMethodDef asarray_functions[];

#endif /* MD_ASARRAY_H */
