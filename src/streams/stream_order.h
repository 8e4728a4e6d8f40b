/* stream_order.h: what a `stream` argument says.
 *
 * Rule:    wait_rule.h has what follows from it.
 * Threads: the GIL is held.
 */
#ifndef MD_STREAM_ORDER_H
#define MD_STREAM_ORDER_H

#include "metal/stream.h"
#include "python/state.h"

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
#endif /* MD_STREAM_ORDER_H */
