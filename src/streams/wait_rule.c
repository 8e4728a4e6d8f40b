/* wait_rule.c: see wait_rule.h. */
#include "streams/wait_rule.h"

#include "metal/work.h"
#include "python/errors.h"

/* ---- the CPU waits ---- */

int
wait_rule_for_busy_cpu(PyObject *op, const char *function, const touched_bytes *bytes,
                       bool is_for_writing)
{
    metal_storage *storage = bytes->storage;
    if (!tracking_is_quiet(storage->handle) &&
        waiting_for_busy_storage(state_of(op), function, storage, is_for_writing) < 0) {
        return -1;
    }
    WATCH_HOST_ACCESS(storage->handle, bytes->offset_bytes, bytes->nbytes, is_for_writing);
    return 0;
}

/* ---- the GPU waits ---- */

int
wait_rule_on_gpu(md_state *state, const char *function, metal_stream *stream,
                 metal_storage *storage)
{
    bridge_status status = WITHOUT_GIL(work_wait_storage(stream, storage));
    return errors_check_status(state, function, status, NULL, 0);
}

int
wait_rule_on_gpu_for_event(md_state *state, const char *function, metal_stream *stream,
                           bridge_event *event, uint64_t value, metal_storage *storage)
{
    bridge_status status = WITHOUT_GIL(work_wait_event(stream, event, value, storage));
    return errors_check_status(state, function, status, NULL, 0);
}

/* ---- as the `stream` argument says ---- */

int
wait_rule_for_busy_gpu(md_state *state, const char *function, metal_storage *storage,
                       const stream_order *order)
{
    return order->stream != NULL ? wait_rule_on_gpu(state, function, order->stream, storage)
                                 : waiting_for_busy_storage(state, function, storage, true);
}

int
wait_rule_for_moment(md_state *state, const char *function, metal_storage *storage,
                     const stream_order *order, bridge_event *event, uint64_t value)
{
    bool is_here = event == NULL || order->is_ordered;
    if (!is_here && order->stream != NULL) {
        return wait_rule_on_gpu_for_event(state, function, order->stream, event, value,
                                          storage);
    }
    if (!is_here && waiting_for_event(event, value, STREAM_FOREVER) < 0) {
        return -1;
    }
    return wait_rule_for_gpu(state, function, storage, order);
}

/* ---- our copies and fills ---- */

/* Can nobody but our calls, which wait, see the bytes? */
static bool
is_out_of_sight(metal_storage *storage)
{
    return storage->mode == BRIDGE_PRIVATE && !storage_is_exported(storage);
}

bool
wait_rule_after_work(metal_storage *dst, metal_storage *src)
{
    return !(is_out_of_sight(dst) && (src == NULL || is_out_of_sight(src)));
}
