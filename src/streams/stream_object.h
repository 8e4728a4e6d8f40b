/* stream_object.h: the Stream object apart from its methods, and which stream is current.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_OBJECT_H
#define MD_STREAM_OBJECT_H

#include "metal/stream.h"
#include "python/state.h"

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

/* A Stream that takes over the caller's reference to `stream`, whatever the result: owned
 * (+1). */
PyObject *stream_wrap(md_state *state, metal_stream *stream);

/* ---- waiting: -1 with MetalError ---- */

/* The value that the stream has once all that is on its queue by now is done. */
int stream_mark_now(md_state *state, const char *function, metal_stream *stream,
                    uint64_t *value);
/* Wait for all of them, whatever fails, and then raise the first failure: no work may be left in
 * flight. */
int stream_synchronize_all(md_state *state, const char *function, metal_stream *const *streams,
                           size_t count);
/* Wait for all work on all streams of a device. */
int stream_synchronize_device(md_state *state, const char *function,
                              const device_record *device);

/* ---- which stream is current: of this thread or task ---- */

/* The Stream of the device's own queue: owned (+1), the same object at every call. */
PyObject *stream_default_object(md_state *state, const device_record *device);

/* The innermost `with stream:` of this thread: borrowed until it ends; NULL without one. */
PyObject *stream_entered(md_state *state);

int stream_current_prepare(md_state *state); /* -1 with MemoryError */
PyObject *stream_enter(PyObject *op, PyObject *unused);
PyObject *stream_exit(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern const char stream_enter_doc[], stream_exit_doc[];

/* ---- failures that no wait can report go to sys.unraisablehook ---- */

/* Report them in the main interpreter from now on, by a pending call, until it ends. */
void stream_lost_watch(void);

/* ---- `async with stream`, and `await event`: metal_dlpack.awaiting does them ---- */

PyObject *stream_aenter(PyObject *op, PyObject *unused);
PyObject *stream_aexit(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
extern const char stream_aenter_doc[], stream_aexit_doc[];

/* ---- what a `stream` argument says; wait_rule.h has what follows from it ---- */

/* The device's own: +1, or NULL with MetalError. */
metal_stream *stream_default_taken(md_state *state, const char *function,
                                   const device_record *device);

/* The stream that a call is to work on: a Stream, or the handle of a living one's queue; for
 * NULL and None the innermost `with stream:`.  `*out` is +1, or NULL where there is none: the
 * work is done on return.  -1 with BufferError (an int that is no such handle) or TypeError. */
int stream_convert_target(md_state *state, const char *function, PyObject *value,
                          metal_stream **out);

/* What a `stream` argument says: who waits for work in flight. */
typedef struct stream_order {
    bool is_ordered;      /* -1: nobody, the caller has waited */
    metal_stream *stream; /* owned (+1): it waits, on the GPU; NULL: the CPU waits, now */
} stream_order;

/* None, -1, a Stream or the handle of one's queue.  -1 as above. */
int stream_convert_order(md_state *state, const char *function, PyObject *value,
                         stream_order *out);

#endif /* MD_STREAM_OBJECT_H */
