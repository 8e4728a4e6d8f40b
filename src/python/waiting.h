/* waiting.h: Python threads that wait for the GPU.
 *
 * Rule:    every wait of Python code goes through here: the GIL is released, and Ctrl-C is
 *          heard within WAITING_SLICE_NS.
 * Threads: the GIL is held on entry and on return.
 * Failure: -1 with an exception: MetalError for GPU work that failed, raised once; whatever a
 *          signal handler raises, KeyboardInterrupt as a rule.  The work goes on.
 */
#ifndef MD_WAITING_H
#define MD_WAITING_H

#include "metal/storage_record.h"
#include "metal/tracking.h"
#include "python/state.h"

#define WAITING_SLICE_NS UINT64_C(50000000)

/* 1: the stream has reached the value.  0: not within the time.  -1: see above. */
int waiting_for_stream(md_state *state, const char *function, metal_stream *stream,
                       uint64_t value, uint64_t timeout_ns);
/* The same, and failures are left for the next wait to report. */
int waiting_for_value(md_state *state, const char *function, metal_stream *stream,
                      uint64_t value, uint64_t timeout_ns);
/* The same for any event; who signals it, and whether that fails, is unknown. */
int waiting_for_event(bridge_event *event, uint64_t value, uint64_t timeout_ns);

/* Wait for the work in flight on the buffer: its writes; before writing, its reads too.  0: it
 * is finished.  wait_rule.h asks first whether there is any.  The storage is looked at before the
 * first wait only: it may go meanwhile. */
int waiting_for_busy_storage(md_state *state, const char *function, metal_storage *storage,
                             bool is_for_writing);

/* Seconds as nanoseconds; NULL and None are STREAM_FOREVER.  -1 with TypeError
 * or ValueError. */
int waiting_convert_timeout(const char *function, PyObject *value, uint64_t *out_ns);

#endif /* MD_WAITING_H */
