/* stream_current.h: which stream is current.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_CURRENT_H
#define MD_STREAM_CURRENT_H

#include "streams/stream_object.h"

/* The Stream of the device's own queue: owned (+1), the same object at every call. */
PyObject *stream_default_object(md_state *state, const device_record *device);

/* The innermost `with stream:` of this thread: borrowed until it ends; NULL without one. */
PyObject *stream_entered(md_state *state);

int stream_current_prepare(md_state *state); /* -1 with MemoryError */
PyObject *stream_enter(PyObject *op, PyObject *unused);
PyObject *stream_exit(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern const char stream_enter_doc[], stream_exit_doc[];
extern PyMethodDef stream_functions[];

#endif /* MD_STREAM_CURRENT_H */
