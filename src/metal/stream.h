/* stream.h: a command queue with one shared event, whose value says how far its work has come.
 *
 * Owns:      the +1 on the queue and on the event; the first error that was not reported yet,
 *            which outlives the stream.
 * Calls:     metal_bridge.h, devices.h.  Never Python.
 * Threads:   every function from any thread, without the GIL.  stream_wait blocks.
 * Invariant: piece n of a stream's work signals the value n, in the order of commits; there is
 *            one metal_stream a queue, so that two names of a queue count together.
 */
#ifndef MD_STREAM_H
#define MD_STREAM_H

#include "metal/devices.h"
#include "metal/tracking_watch.h"

/*     the queue's work       1 ─── 2 ─── 3 ─── 4 ─── 5      each signals its number
 *     cleaned up after       ●     ●                        completed = 2
 *     committed              ●     ●     ●     ●     ●      submitted = 5
 *
 *     the event's value is 2 or more: it is ahead of the clean-up */
typedef struct metal_stream {
    uint32_t refs;               /* atomic */
    uint32_t serial;             /* from 1: no two streams of a process have one */
    const device_record *device; /* borrowed for ever */
    bridge_queue *queue;         /* owned (+1) */
    bridge_event *event;         /* owned (+1) */
    uint64_t submitted;          /* behind LOCK_TRACKING */
    uint64_t waiting;            /* the last piece that begins with a wait; behind it too */
    uint64_t completed;          /* atomic */
    bool has_failed;             /* atomic: `failure` was not reported yet */
    bridge_error failure;        /* the first one; behind LOCK_STREAMS */
    struct metal_stream *next;   /* of the living, or of lost failures; behind LOCK_STREAMS */
} metal_stream;

/* A moment in a stream's work: reached once its `completed` is `value` or more. */
typedef struct stream_mark {
    /* the declaration says who owns it; NULL: no moment, always reached */
    metal_stream *stream;
    uint64_t value;
    bool is_of_earlier_owner; /* of a pooled buffer: the wait reports no failure */
} stream_mark;

#define STREAM_FOREVER UINT64_MAX

/* A queue of its own.  `*out` is +1 on BRIDGE_OK and NULL on anything else. */
bridge_status stream_new(const device_record *device, metal_stream **out);
/* The stream of an existing queue, which is retained: the living one, or a new one.  Result as
 * stream_new. */
bridge_status stream_of_queue(bridge_queue *queue, const device_record *device,
                              metal_stream **out);
/* The stream of the device's own queue: borrowed for ever; NULL: Metal gave no queue
 * or event. */
metal_stream *stream_default(const device_record *device);
/* Why there was none. */
static inline bridge_status
stream_default_status(void)
{
    return bridge_is_forked() ? BRIDGE_FORKED : BRIDGE_NO_COMMAND;
}
/* The living stream whose queue has this address: +1; NULL: none.  The address is not
 * followed. */
metal_stream *stream_find(const void *queue);
/* All living streams of a device, each +1, and the list for free().  NULL: no memory. */
metal_stream **stream_list(const device_record *device, size_t *count);

static inline void
stream_retain(metal_stream *stream)
{
    (void)__atomic_fetch_add(&stream->refs, 1, __ATOMIC_RELAXED);
}

void stream_release(metal_stream *stream); /* NULL is allowed */

static inline bool
stream_has_reached(const metal_stream *stream, uint64_t value)
{
    bool is_reached = __atomic_load_n(&stream->completed, __ATOMIC_ACQUIRE) >= value;
    if (is_reached) {
        WATCH_REACHED(stream->event, value);
    }
    return is_reached;
}

/* Wait until the work of `value` is done.  False: not within `timeout_ns`.  In a forked child
 * nothing is ever done: false at once. */
bool stream_wait(metal_stream *stream, uint64_t value, uint64_t timeout_ns);

/* Write one byte to the descriptor, once, when the work of `value` is done: on a Metal thread,
 * after stream_has_reached says so.  `*is_reached`: it is done already, and nothing is
 * written.  The descriptor does not block, and is open until stream_silence. */
bridge_status stream_ring(metal_stream *stream, uint64_t value, int descriptor,
                          bool *is_reached);
/* Nothing is written to the descriptor any more: it can be closed. */
void stream_silence(int descriptor);

/* Has work failed without a report so far? */
static inline bool
stream_has_failure(const metal_stream *stream)
{
    return __atomic_load_n(&stream->has_failed, __ATOMIC_ACQUIRE);
}

/* The first failure since the last call, once: true, and `*out` holds Metal's words. */
bool stream_take_failure(metal_stream *stream, bridge_error *out);

/* ---- failures that no wait can report any more: the stream is gone ---- */

/* Take one of them.  False: there is none. */
bool stream_take_lost(bridge_error *out);
/* Call `tell` when there is one: on any thread, under any lock but Python's; it must not wait.
 * NULL: call nothing. */
void stream_on_lost(void (*tell)(void));

/* ---- for work.c ---- */

/* The work of a value failed: kept for stream_take_failure. */
void stream_note_failure(metal_stream *stream, const bridge_error *error);
/* The work of a value is finished: wake all that wait for it. */
void stream_complete(metal_stream *stream, uint64_t value);

#endif /* MD_STREAM_H */
