/* tracking.h: which buffers have GPU work in flight: their last write and the reads since
 * then.
 *
 * Owns:      one record a buffer with work in flight, and none for any other: when nothing
 *            runs on the GPU, a look at one number says so.
 * Calls:     stream.h; the bridge, whether Metal orders a buffer's work itself.  Never Python.
 * Threads:   any.  One lock orders all submissions: two threads that use one buffer on two
 *            streams get one order, the same for each buffer.
 * Invariant: a record lives from the submission of the first piece of work to the completion
 *            of the last; a failed one stays until the failure is reported.
 * Note:      records are found by the MTLBuffer, since one can be wrapped more than once.
 */
#ifndef MD_TRACKING_H
#define MD_TRACKING_H

#include "metal/storage_record.h"
#include "metal/stream.h"

#define TRACKING_READS \
    4 /* streams with reads in flight on one buffer; a fifth waits for one of them */
#define TRACKING_MARKS (TRACKING_READS + 2) /* the reads, the write, one failure */

extern uint32_t tracking_count; /* atomic: how many records there are */

/* Is the whole GPU idle, as far as we know?  One load.  `buffer`, which may be NULL, is what the caller
 * is about: the validation is told of no other, or it would depend on timing what else it takes to
 * be in order. */
static inline bool
tracking_is_quiet(const bridge_buffer *buffer)
{
    bool is_quiet = __atomic_load_n(&tracking_count, __ATOMIC_ACQUIRE) == 0;
    /* mutant survives (condition always): validation alone: a race may be missed */
    if (is_quiet) {
        WATCH_QUIET(buffer);
    }
    return is_quiet;
}

/* ---- before the CPU, or a queue that does not count with us, uses a buffer ---- */

/* What it must wait for: the last write; before writing, the reads in flight too.  Fills
 * `marks` (each stream +1) and returns how many.  A mark of value 0 stands for failed work that
 * has finished: ask its stream for the failure.  Marks of an earlier owner of a pooled buffer
 * say so. */
int tracking_copy_marks(const bridge_buffer *buffer, bool is_for_writing,
                        stream_mark marks[TRACKING_MARKS]);
void tracking_release_marks(stream_mark *marks, int count);
/* Wait for them.  BRIDGE_COMMAND_FAILED: one of their streams had a failure, taken to
 * `*error`. */
bridge_status tracking_wait(const bridge_buffer *buffer, bool is_for_writing,
                            bridge_error *error);
/* The first failure of a stream that was not reported yet; its buffers forget it. */
bool tracking_take_failure(metal_stream *stream, bridge_error *error);

/* The buffer is about to go back to the pool or to Metal. */
void tracking_forget(const bridge_buffer *buffer);

/* ---- for work.c, which holds LOCK_TRACKING round those named `_locked` ---- */

/* Operands may have one buffer in common, by one storage or by storages of several owners: the order
 * goes by the buffer, and each of the storages is kept alive. */
typedef struct work_operand {
    metal_storage *storage; /* borrowed; there are bytes in it */
    bool is_written;
} work_operand;

/* What a piece of work waits for, and for the sake of which buffer; borrowed until the lock is
 * dropped. */
typedef struct tracking_before {
    stream_mark mark;
    const bridge_buffer *buffer;
} tracking_before;

/* Make room for the records of a piece on `stream`, and list what it must wait for, TRACKING_MARKS an
 * operand at most: returns how much that is.  -1: there is no memory, and nothing to undo. */
int tracking_prepare_locked(const metal_stream *stream, const work_operand *operands, int count,
                            tracking_before *before);
/* The piece is not submitted after all. */
void tracking_cancel_locked(const work_operand *operands, int count);
/* It is: as `value`, and it waits for all that was listed. */
void tracking_begin_locked(const work_operand *operands, int count, metal_stream *stream,
                           uint64_t value);
/* What work on `stream`, or on none (NULL), must wait for before it writes the buffer. */
int tracking_list_locked(bridge_buffer *buffer, const metal_stream *stream,
                         tracking_before before[TRACKING_MARKS]);
/* The storage that the work keeps is about to be released.  Returns who has the buffer, for
 * tracking_end: by then the pool may have given it to another, whom the work's failure is not
 * about. */
uint32_t tracking_let_go(const bridge_buffer *buffer);
/* The work of `value` is finished; `owner` is what tracking_let_go returned before. */
void tracking_end(const bridge_buffer *buffer, metal_stream *stream, uint64_t value,
                  bool has_failed, uint32_t owner);

#endif /* MD_TRACKING_H */
