/* awaitable.h: what `await event` and `async with stream` call; metal_dlpack.awaiting does it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_AWAITABLE_H
#define MD_AWAITABLE_H

#include "python/state.h"

/* function(...) of metal_dlpack.awaiting: owned (+1). */
PyObject *awaitable_call(const char *function, PyObject *const *args, size_t count);

PyObject *stream_aenter(PyObject *op, PyObject *unused);
PyObject *stream_aexit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
extern const char stream_aenter_doc[], stream_aexit_doc[];

#endif /* MD_AWAITABLE_H */
