/* stream_type.h: the Python type `Stream`, as other types see it.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_TYPE_H
#define MD_STREAM_TYPE_H

#include "python/state.h"
#include "metal/stream.h"

typedef struct {
    PyObject_HEAD
    metal_stream *stream; /* owned (+1) */
    PyObject *weakrefs;   /* keeps nothing alive */
} StreamObject;

static inline metal_stream *
stream_cast(PyObject *op)
{
    return ((StreamObject *)op)->stream;
}

/* A Stream that takes over the caller's reference to `stream`, whatever the result: owned (+1). */
PyObject *stream_wrap(md_state *state, metal_stream *stream);

/* The Stream of the device's own queue: owned (+1), the same object at every call. */
PyObject *stream_default_object(md_state *state, const device_record *device);

/* The innermost `with stream:` of this thread: borrowed until it ends; NULL without one. */
PyObject *stream_entered(md_state *state);

/* Wait for all work on all streams of a device.  -1 with MetalError. */
int stream_synchronize_device(md_state *state, const char *function, const device_record *device);

/* stream_current.c */
int stream_current_prepare(md_state *state); /* -1 with MemoryError */
PyObject *stream_enter(PyObject *op, PyObject *unused);
PyObject *stream_exit(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern const char stream_enter_doc[], stream_exit_doc[];
extern PyMethodDef stream_functions[];

#endif /* MD_STREAM_TYPE_H */
