/* dlpack_producer.h: asking other libraries' objects for their tensors; from_dlpack.
 *
 * Threads: the GIL is held; the producer's code runs with it.
 */
#ifndef MD_DLPACK_PRODUCER_H
#define MD_DLPACK_PRODUCER_H

#include "exchange/import_request.h"

/* Has the type of `op` __dlpack__, or is `op` a capsule?  1, 0, or -1 with an exception. */
int producer_speaks_dlpack(md_state *state, PyObject *op);

/* An Array of a producer's or a capsule's data: owned (+1).  NULL with AttributeError (no
 * producer), what the producer raised, or what dlpack_import.h names. */
PyObject *producer_import(md_state *state, PyObject *producer, const import_request *request);

/* 'cpu', as a `device` argument; NULL is allowed. */
bool producer_is_cpu_name(PyObject *value);

extern PyMethodDef producer_functions[];

#endif /* MD_DLPACK_PRODUCER_H */
