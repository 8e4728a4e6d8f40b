/* stream_object.h: the Stream object, apart from its methods.
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

#endif /* MD_STREAM_OBJECT_H */
