/* wait_rule.h: who waits for GPU work in flight before bytes are touched: the one place that
 * decides it.
 *
 *   who is about to use the bytes     `stream`    who waits, and where
 *   ───────────────────────────────   ─────────   ─────────────────────────────────────────────
 *   the CPU: items, views, exports    any         the CPU, now: to read for the write in flight,
 *   to the CPU                                    to write for the reads too; then its copy of
 *                                                 managed memory is made current
 *   somebody on the GPU: exports      None        the CPU, now, for all work of ours
 *   and imports of Metal memory       a Stream    its queue, on the GPU
 *                                     -1          nobody: the caller has seen to it
 *   the same, and the producer has    None        the CPU, now, for the moment, then for ours
 *   named a moment (an Event, its     a Stream    its queue, on the GPU, for the moment
 *   __metal_stream__)                 -1          nobody
 *   our own copies and fills on       a Stream    nobody: the GPU keeps them in order
 *   the GPU                           none        the CPU, afterwards, unless no side can be
 *                                                 looked at before it is done: is_out_of_sight
 *
 * Cost:    when nothing is in flight, one load.
 * Calls:   waiting.h to wait on the CPU, work.h to wait on the GPU.
 * Threads: the GIL is held; released while submitting and waiting.
 * Failure: -1 with MetalError, or with what a signal handler raised.
 */
#ifndef MD_WAIT_RULE_H
#define MD_WAIT_RULE_H

#include "metal/storage_record.h"
#include "python/state.h"
#include "streams/stream_order.h"

/* Before the CPU uses the bytes by functions that make managed memory current themselves
 * (storage_bytes.h), or gives them back. */
int wait_rule_for_work(md_state *state, const char *function, metal_storage *storage,
                       bool is_for_writing);

/* Before the CPU reads `address`, or writes to it too. */
int wait_rule_for_cpu(md_state *state, const char *function, metal_storage *storage,
                      bool is_for_writing);

/* Before somebody uses the buffer on the GPU. */
int wait_rule_for_gpu(md_state *state, const char *function, metal_storage *storage,
                      const stream_order *order);
/* The same where the bytes are ready once the event has `value`; NULL: it has it. */
int wait_rule_for_moment(md_state *state, const char *function, metal_storage *storage,
                         const stream_order *order, bridge_event *event, uint64_t value);

/* What `stream` runs from now on waits, on the GPU, for our work on the buffer; for the event,
 * until which others write to `storage`, which may be NULL. */
int wait_rule_on_gpu(md_state *state, const char *function, metal_stream *stream,
                     metal_storage *storage);
int wait_rule_on_gpu_for_event(md_state *state, const char *function, metal_stream *stream,
                               bridge_event *event, uint64_t value, metal_storage *storage);

/* Is work of ours in flight on the buffer? */
bool wait_rule_is_busy(const metal_storage *storage);
/* Asked before a copy or fill on the GPU is submitted: will the CPU wait for it?  `src` NULL:
 * there is none, or it was read already. */
bool wait_rule_after_work(const metal_stream *stream, const metal_storage *dst,
                          const metal_storage *src);

#endif /* MD_WAIT_RULE_H */
