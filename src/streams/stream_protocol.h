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
#include "streams/stream_order.h"

#define STREAM_PROTOCOL_VERSION 1

/* The answer of an object's __metal_stream__. */
typedef struct stream_answer {
    /* the queue it works on, borrowed from the object; NULL: it does not say */
    bridge_queue *queue;
    /* owned (+1): has `value` once its last work is done; NULL: there is none */
    bridge_event *event;
    uint64_t value;
} stream_answer;

/* Ask.  -1 with TypeError, ValueError (no such handles, another version), or what it raised. */
int stream_protocol_ask(md_state *state, const char *function, PyObject *op,
                        stream_answer *out);
/* The tuple (version, queue, event, value): owned (+1). */
PyObject *stream_protocol_answer(const metal_stream *stream, uint64_t value);

/* Is `op` an Event, or does it have __metal_stream__?  1, 0, or -1 with an exception. */
int stream_protocol_speaks(md_state *state, PyObject *op);

/* `moment`, an Event or an object with __metal_stream__, says when foreign work on the buffer
 * is finished.  The order says who waits for it, and for our work.  -1 with an exception. */
int stream_protocol_order(md_state *state, const char *function, const stream_order *order,
                          metal_storage *storage, PyObject *moment);

/* Let a stream wait, on the GPU, for what `op` is: an Event, a Stream, an Array, or anything
 * with __metal_stream__.  -1 with an exception. */
int stream_protocol_await(md_state *state, const char *function, metal_stream *stream,
                          PyObject *op);

#endif /* MD_STREAM_PROTOCOL_H */
