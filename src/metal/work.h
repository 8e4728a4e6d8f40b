/* work.h: pieces of GPU work on a stream: what they use is ordered, kept alive and cleaned up
 * after.
 *
 * Owns:    each piece's references to its stream and its storages, until the GPU is done with
 *          it.
 * Calls:   metal_bridge.h to encode, tracking.h for what must come before, storage.h.
 * Threads: any, without the GIL.  Submitting can block while the queue is full; it never waits
 *          for work that is in flight: the GPU does.  Clean-up runs on a Metal thread.
 * Rule:    a piece of work that fails does not stop those that wait for it; its stream keeps
 *          the error.
 */
#ifndef MD_WORK_H
#define MD_WORK_H

#include "metal/storage.h"
#include "metal/stream.h"
#include "metal/timeline.h"
#include "metal/tracking.h"

/* Encode a wait, unless the event has the value already; returns whether. */
bool work_encode_wait(bridge_commands *commands, bridge_event *event, uint64_t value);

/* Encodes the commands.  It runs under the lock that orders all submissions: no waiting. */
typedef bridge_status work_encoder(bridge_commands *commands, void *context);

/* How long the GPU takes for one piece. */
typedef struct work_time work_time;

work_time *work_time_new(void);          /* owned (+1); NULL: there is no memory */
void work_time_release(work_time *time); /* any thread; NULL is allowed */
/* In seconds, once the piece is done; NAN where it failed.  A wait that the piece begins with may
 * count: nothing else should be in flight on its operands. */
double work_time_seconds(const work_time *time);
/* What a timeline shows of a piece. */
typedef struct work_look {
    timeline_kind kind;
    size_t nbytes; /* that are copied or filled */
} work_look;

/* Commit one command buffer: what is encoded runs after all work in flight that it depends
 * on.  The storages live until it is done.  On BRIDGE_OK `*value` is what the stream reaches
 * then; on anything else nothing was committed.  The piece keeps `time` until it is done; NULL:
 * nobody asks. */
bridge_status work_submit(metal_stream *stream, work_look look, const work_operand *operands,
                          int count, work_encoder *encode, void *context, work_time *time,
                          uint64_t *value);

/* Copy runs of bytes; each is a multiple of 4 and so are its offsets.  SPEC
 * MTLBlitCommandEncoder. */
bridge_status work_copy(metal_stream *stream, metal_storage *src, metal_storage *dst,
                        const bridge_run *runs, size_t count, uint64_t *value);
/* Set every byte of a range; its offset and length are multiples of 4 too. */
bridge_status work_fill(metal_stream *stream, metal_storage *dst, size_t offset_bytes,
                        size_t nbytes, uint8_t byte, uint64_t *value);

/* Submit an empty piece: its value is reached once all that was committed to the queue before
 * is done, foreign work included. */
bridge_status work_mark(metal_stream *stream, uint64_t *value);
/* The value that the stream has when all that was submitted to it is done. */
uint64_t work_count_submitted(const metal_stream *stream);
/* Is all that was submitted to the stream done?  Foreign work on its queue is not counted. */
bool work_is_done(metal_stream *stream);
/* What is submitted later runs after the event has `value`, and so does what others encode later
 * on the queue if it uses `storage`.  Until then foreign work writes that (it may be NULL): it
 * counts as written by this stream. */
bridge_status work_wait_event(metal_stream *stream, bridge_event *event, uint64_t value,
                              metal_storage *storage);
/* What is submitted later, and what others encode later on the queue and uses the buffer, runs
 * after all work in flight on the buffer.  Where there is none, BRIDGE_OK and nothing is
 * submitted. */
bridge_status work_wait_storage(metal_stream *stream, metal_storage *storage);

/* A command that uses a buffer and changes no byte of it.  Apple's pages disagree on what a wait on
 * the GPU holds back: all later work of the queue, or the rest of its command buffer.  In a queue of
 * somebody else's, whose later command buffers we do not make, a wait with a touch behind it is right
 * either way: Metal keeps commands of one queue that use a tracked buffer in order.  SPEC
 * MTLHazardTrackingModeTracked */
bridge_status work_touch(bridge_commands *commands, const metal_storage *storage);
/* Ask before, under no lock: the first time compiles it.  False: it cannot be had. */
bool work_can_touch(const device_record *device);

/* One mark that stands for all work in flight on a buffer, on `stream` where it is on more
 * than one; `*out`'s stream is +1.  Without any: a mark of `stream` that is reached. */
bridge_status work_mark_storage(metal_stream *stream, metal_storage *storage, stream_mark *out);

#endif /* MD_WORK_H */
