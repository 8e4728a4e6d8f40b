/* awaitable.h: `async with stream`; metal_dlpack.awaiting does it, and `await event`.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_AWAITABLE_H
#define MD_AWAITABLE_H

#include "python/state.h"

PyObject *stream_aenter(PyObject *op, PyObject *unused);
PyObject *stream_aexit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
extern const char stream_aenter_doc[], stream_aexit_doc[];

#endif /* MD_AWAITABLE_H */
