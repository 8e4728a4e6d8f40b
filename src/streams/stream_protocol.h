/* stream_protocol.h: __metal_stream__, by which objects of different frameworks say what to
 * wait for.
 *
 * Source:  docs/metal_stream.md.
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_PROTOCOL_H
#define MD_STREAM_PROTOCOL_H

#include "metal/storage.h"
#include "python/state.h"
#include "streams/stream_object.h"

/* The tuple (version, queue, event, value): owned (+1). */
PyObject *stream_protocol_answer(const metal_stream *stream, uint64_t value);

/* Is `op` an Event, or does it have __metal_stream__?  1, 0, or -1 with an exception. */
int stream_protocol_speaks(md_state *state, PyObject *op);

/* `moment`, an Event or an object with __metal_stream__, says when foreign work on the buffer
 * is finished.  The order says who waits for it, and for our work.  -1 with an exception. */
int stream_protocol_order(md_state *state, const char *function, const stream_order *order,
                          metal_storage *storage, PyObject *moment);

/* How an Array begins: nothing else of it is looked at on this floor. */
typedef struct {
    PyObject_VAR_HEAD
    metal_storage *storage;
} StorageObject;

/* Borrowed from an Array. */
static inline metal_storage *
storage_of_object(PyObject *op)
{
    return ((StorageObject *)op)->storage;
}

/* Let a stream wait, on the GPU, for what `op` is: an Event, a Stream, an Array, or anything
 * with __metal_stream__.  -1 with an exception. */
int stream_protocol_await(md_state *state, const char *function, metal_stream *stream,
                          PyObject *op);

#endif /* MD_STREAM_PROTOCOL_H */
