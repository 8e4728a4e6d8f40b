/* stream_object.c: makes the Stream objects; see stream_object.h. */
#include "streams/stream_object.h"

PyObject *
stream_wrap(md_state *state, metal_stream *stream)
{
    StreamObject *self = PyObject_GC_New(StreamObject, state->stream_type);
    if (self == NULL) {
        stream_release(stream);
        return NULL;
    }
    self->stream = stream;
    self->weakrefs = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}
