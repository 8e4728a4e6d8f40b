/* wait_rule.h: who waits for GPU work in flight before bytes are touched, decided here alone.
 *
 *     who will touch the bytes         stream=     who waits
 *     ──────────────────────────────   ─────────   ───────────────────────────────────────────
 *     the CPU: items, views, exports   any         the CPU, now: before reading for writes in
 *     to the CPU                                   flight, before writing for reads too
 *     a consumer on the GPU: exports   None        the CPU, now, for all work in flight
 *     and imports of Metal memory      a Stream    its queue, on the GPU
 *                                      -1          nobody: the caller has waited
 *     the same, but the producer       None        the CPU, now, for the moment and all work
 *     named a moment: an Event, or     a Stream    its queue, on the GPU, for both
 *     __metal_stream__                 -1          nobody
 *     GPU work of our own: copies      a Stream    nobody: the GPU keeps the order
 *     and fills                        none        the CPU, afterwards; not if all sides are
 *                                                  out of sight: private and never given away
 *     kernels of the user's            any         nobody: kernel_launch.c has what holds for
 *                                                  tensors of other frameworks
 *
 * Cost:    when nothing is in flight, one memory read.
 * Calls:   waiting.h to wait on the CPU, work.h to wait on the GPU.
 * Threads: the GIL is held; released while submitting and waiting.
 * Failure: -1 with MetalError, or with what a signal handler raised.
 */
#ifndef MD_WAIT_RULE_H
#define MD_WAIT_RULE_H

#include "metal/tracking.h"
#include "metal/tracking_watch.h"
#include "python/waiting.h"
#include "streams/stream_object.h"

/* Before the CPU uses the bytes by functions that tell the validation themselves
 * (staging.h). */
static inline int
wait_rule_for_work(md_state *state, const char *function, metal_storage *storage,
                   bool is_for_writing)
{
    if (tracking_is_quiet(storage->handle)) {
        return 0;
    }
    return waiting_for_busy_storage(state, function, storage, is_for_writing);
}

/* A part of a storage that the CPU is about to touch.  The storage decides who waits; the range
 * is for the validation (tracking_watch.h). */
typedef struct touched_bytes {
    metal_storage *storage; /* borrowed */
    size_t offset_bytes, nbytes;
} touched_bytes;

int wait_rule_for_busy_cpu(PyObject *op, const char *function, const touched_bytes *bytes,
                           bool is_for_writing);

/* Before the CPU reads these bytes at `address`, or writes them, or a view of them goes out, which
 * may write unless it is read-only.  `op` is any object of the module: its state is looked up only
 * if there is something to wait for. */
static inline int
wait_rule_for_cpu(PyObject *op, const char *function, const touched_bytes *bytes,
                  bool is_for_writing)
{
    return tracking_is_quiet(NULL) && !WATCH_IS_ON()
               ? 0
               : wait_rule_for_busy_cpu(op, function, bytes, is_for_writing);
}

int wait_rule_for_busy_gpu(md_state *state, const char *function, metal_storage *storage,
                           const stream_order *order);

/* Before a consumer uses the buffer on the GPU. */
static inline int
wait_rule_for_gpu(md_state *state, const char *function, metal_storage *storage,
                  const stream_order *order)
{
    return order->is_ordered || tracking_is_quiet(storage->handle)
               ? 0
               : wait_rule_for_busy_gpu(state, function, storage, order);
}
/* wait_rule_for_gpu where the bytes are ready once the event has `value`; NULL: they are. */
int wait_rule_for_moment(md_state *state, const char *function, metal_storage *storage,
                         const stream_order *order, bridge_event *event, uint64_t value);

/* What `stream` runs from now on waits, on the GPU, for our work on the buffer. */
int wait_rule_on_gpu(md_state *state, const char *function, metal_stream *stream,
                     metal_storage *storage);
/* The same for the event; until then foreign work writes `storage`, which may be NULL. */
int wait_rule_on_gpu_for_event(md_state *state, const char *function, metal_stream *stream,
                               bridge_event *event, uint64_t value, metal_storage *storage);

/* Asked before a copy or fill on the GPU is submitted for which no stream was named: will the CPU
 * wait for it?  `src` NULL: there is none, or it was read already. */
bool wait_rule_after_work(metal_storage *dst, metal_storage *src);

#endif /* MD_WAIT_RULE_H */
