/* array_queue.c: see array_queue.h.
 *
 * Calls:   work_items.h for the work, staging.h where one side is CPU memory, waiting.h.
 */
#include "array/array_queue.h"

#include "metal/staging.h"
#include "python/errors.h"
#include "python/waiting.h"
#include "streams/wait_rule.h"

#define LONGEST_ITEM 4096 /* SPEC MTLComputeCommandEncoder setBytes:length:atIndex: */

/* ---- who does it ---- */

/* Is it the caller's Array, and not one made for this call over foreign memory? */
static bool
is_array(const array_side *side)
{
    return side->array != NULL &&
           (side->kept == NULL || array_storage(side->array)->mode == BRIDGE_PRIVATE);
}

/* Does the CPU not reach them? */
static bool
is_private(const array_side *side)
{
    return side->array != NULL && array_storage(side->array)->mode == BRIDGE_PRIVATE;
}

/* ---- submitting ---- */

/* What one call needs. */
typedef struct queue_call {
    const char *function;
    md_state *state;
    metal_stream *stream; /* borrowed */
} queue_call;

/* False, without an exception: the GPU of the stream cannot do it. */
static bool
begin_call(const char *function, ArrayObject *array, metal_stream *asked, queue_call *out)
{
    const device_record *device = array_storage(array)->device;
    out->function = function;
    out->state = state_of((PyObject *)array);
    out->stream = asked != NULL ? asked : stream_default(device);
    return out->stream != NULL && out->stream->device == device;
}

static work_items
items_of(const array_side *side)
{
    return (work_items){array_storage(side->array), side->array->byte_offset, &side->layout};
}

static int
finish(const queue_call *call, bridge_status status, size_t nbytes)
{
    return errors_check_status(call->state, call->function, status, NULL, nbytes) < 0 ? -1 : 1;
}

static int
wait_until(const queue_call *call, uint64_t value)
{
    int reached =
        waiting_for_stream(call->state, call->function, call->stream, value, STREAM_FOREVER);
    return reached < 0 ? -1 : 1;
}

static int
run_copy(const queue_call *call, const work_items *dst, const work_items *src, bool waits)
{
    uint64_t value;
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = work_items_copy(call->stream, dst, src, &value);
    Py_END_ALLOW_THREADS
    int result = finish(call, status, dst->storage->nbytes);
    return result == 1 && waits ? wait_until(call, value) : result;
}

/* ---- memory that Metal does not know, or that its owner may change once we return ---- */

static char *
address_of(const array_side *side)
{
    return side->array == NULL ? side->origin
                               : array_storage(side->array)->address + side->array->byte_offset;
}

static int
set_dense(const queue_call *call, const strided_layout *like, strided_layout *dense)
{
    layout_fault fault;
    if (!layout_set_dense(dense, like->ndim, like->shape, like->itemsize, 'C', &fault)) {
        /* unreached: no test makes it fail here */
        (void)errors_from_layout(call->state, call->function, &fault);
        return -1;
    }
    return 0;
}

/* As finish(); without a stage it is that which could not be had. */
static int
finish_staged(const queue_call *call, const work_items *stage, bridge_status status,
              size_t nbytes)
{
    if (stage->storage == NULL) { /* unreached: no test makes it fail here */
        int64_t asked = layout_volume(stage->layout) * stage->layout->itemsize;
        (void)errors_no_buffer(call->state, call->function, status, call->stream->device,
                               (uint64_t)asked);
        return -1;
    }
    return finish(call, status, nbytes);
}

static int
upload(const queue_call *call, const array_side *dst, const array_side *src, bool waits)
{
    strided_layout dense;
    work_items to = items_of(dst), stage = {.layout = &dense};
    uint64_t value;
    bridge_status status;
    if (set_dense(call, &dst->layout, &dense) < 0) {
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    status = staging_new(call->stream->device, &stage);
    if (status == BRIDGE_OK) {
        status =
            staging_upload(call->stream, &to, &stage, &src->layout, address_of(src), &value);
    }
    Py_END_ALLOW_THREADS
    int result = finish_staged(call, &stage, status, to.storage->nbytes);
    if (result == 1 && waits) {
        result = wait_until(call, value);
    }
    storage_release(stage.storage);
    return result;
}

static int
download(const queue_call *call, const array_side *dst, const array_side *src)
{
    strided_layout dense;
    work_items from = items_of(src), stage = {.layout = &dense};
    uint64_t value;
    bridge_status status;
    if (set_dense(call, &src->layout, &dense) < 0) {
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    status = staging_new(call->stream->device, &stage);
    if (status == BRIDGE_OK) {
        status = staging_download(call->stream, &stage, &from, &value);
    }
    Py_END_ALLOW_THREADS
    int result =
        finish_staged(call, &stage, status, stage.storage == NULL ? 0 : stage.storage->nbytes);
    if (result == 1) {
        result = wait_until(call, value);
    }
    if (result == 1) {
        Py_BEGIN_ALLOW_THREADS
        staging_deliver(&stage, &dst->layout, address_of(dst));
        Py_END_ALLOW_THREADS
    }
    storage_release(stage.storage);
    return result;
}

/* ---- copies ---- */

static int
copy_arrays(const char *function, const array_side *dst, const array_side *src,
            metal_stream *stream)
{
    queue_call call;
    bool is_queued = stream != NULL || is_private(dst) || is_private(src);
    if (!is_queued || array_storage(dst->array)->device != array_storage(src->array)->device ||
        !begin_call(function, dst->array, stream, &call)) {
        return 0;
    }
    work_items to = items_of(dst), from = items_of(src);
    bool waits = wait_rule_after_work(stream, to.storage, from.storage);
    return run_copy(&call, &to, &from, waits);
}

int
array_queue_copy(const char *function, const array_side *dst, const array_side *src,
                 metal_stream *stream)
{
    queue_call call;
    if (is_array(dst) && is_array(src)) {
        return copy_arrays(function, dst, src, stream);
    }
    if (is_array(dst) && (stream != NULL || is_private(dst))) {
        bool waits = wait_rule_after_work(stream, array_storage(dst->array), NULL);
        return begin_call(function, dst->array, stream, &call) ? upload(&call, dst, src, waits)
                                                               : 0;
    }
    if (!is_array(dst) && is_private(src)) {
        return begin_call(function, src->array, stream, &call) ? download(&call, dst, src) : 0;
    }
    return 0;
}

/* ---- fills ---- */

int
array_queue_fill(const char *function, ArrayObject *dst, const char *item, metal_stream *stream)
{
    queue_call call;
    array_side side;
    array_side_set(&side, dst);
    bool is_queued = stream != NULL || is_private(&side);
    if (!is_queued || side.layout.itemsize > LONGEST_ITEM ||
        !begin_call(function, dst, stream, &call)) {
        return 0;
    }
    uint64_t value;
    bridge_status status;
    work_items to = items_of(&side);
    bool waits = wait_rule_after_work(stream, to.storage, NULL);
    Py_BEGIN_ALLOW_THREADS
    status = work_items_fill(call.stream, &to, item, &value);
    Py_END_ALLOW_THREADS
    int result = finish(&call, status, to.storage->nbytes);
    return result == 1 && waits ? wait_until(&call, value) : result;
}
