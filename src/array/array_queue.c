/* array_queue.c: see array_queue.h.
 *
 * Calls:   work_items.h for the work, storage.h for staging memory, copy.h to fill and empty
 *          that, waiting.h.
 */
#include "array/array_queue.h"

#include "copy/copy.h"
#include "metal/work_items.h"
#include "python/errors.h"
#include "python/waiting.h"

#define LONGEST_ITEM 4096 /* SPEC MTLComputeCommandEncoder setBytes:length:atIndex: */

/* ---- who does it ---- */

/* Is it an Array of the caller's, and not one made over other people's memory for this call? */
static bool
is_array(const array_side *side)
{
    return side->array != NULL &&
           (side->kept == NULL || array_storage(side->array)->mode != BRIDGE_SHARED);
}

static bool
is_private(const array_side *side)
{
    return side->array != NULL && array_storage(side->array)->mode == BRIDGE_PRIVATE;
}

static bool
is_busy(const array_side *side)
{
    return side->array != NULL && !storage_is_quiet() &&
           tracking_is_busy(array_storage(side->array)->handle);
}

/* Would nobody see, before the GPU is done, that it is not? */
static bool
is_out_of_sight(const array_side *side)
{
    const metal_storage *storage = array_storage(side->array);
    bool is_given_away = __atomic_load_n(&storage->is_exported, __ATOMIC_ACQUIRE);
    return (storage->mode == BRIDGE_PRIVATE && !is_given_away) || is_busy(side);
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
finish(const queue_call *call, bridge_status status, const bridge_error *error, size_t nbytes)
{
    if (status == BRIDGE_NO_KERNEL) { /* the CPU can do it too */
        return 0;
    }
    return errors_check_status(call->state, call->function, status, error, nbytes) < 0 ? -1 : 1;
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
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = work_items_copy(call->stream, dst, src, &value, &error);
    Py_END_ALLOW_THREADS
    int result = finish(call, status, &error, dst->storage->nbytes);
    return result == 1 && waits ? wait_until(call, value) : result;
}

/* ---- memory that Metal does not know, or that its owner may change once we return ---- */

/* Shared memory for the items of a layout, densely: owned (+1); NULL with MemoryError.  The
 * work that uses it keeps it. */
static metal_storage *
new_stage(const queue_call *call, const strided_layout *like, strided_layout *dense)
{
    metal_storage *stage = NULL;
    layout_fault fault;
    bridge_status status;
    if (!layout_set_dense(dense, like->ndim, like->shape, like->itemsize, 'C', &fault)) {
        (void)errors_from_layout(call->state, call->function, &fault);
        return NULL;
    }
    size_t nbytes = (size_t)(layout_volume(dense) * dense->itemsize);
    Py_BEGIN_ALLOW_THREADS
    status = storage_new(call->stream->device, nbytes, BRIDGE_SHARED, &stage);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_no_buffer(call->state, call->function, status, call->stream->device,
                               nbytes);
    }
    return stage;
}

static char *
address_of(const array_side *side)
{
    return side->array == NULL ? side->origin
                               : array_storage(side->array)->address + side->array->byte_offset;
}

static int
copy_on_cpu(const strided_layout *dst, char *to, const strided_layout *src, const char *from)
{
    bool is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = copy_strided(dst, to, src, from);
    Py_END_ALLOW_THREADS
    if (!is_done) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int
upload(const queue_call *call, const array_side *dst, const array_side *src, bool waits)
{
    strided_layout dense;
    work_items to = items_of(dst);
    metal_storage *stage = new_stage(call, &dst->layout, &dense);
    int result = -1;
    if (stage != NULL &&
        copy_on_cpu(&dense, stage->address, &src->layout, address_of(src)) == 0) {
        work_items from = {stage, 0, &dense};
        result = run_copy(call, &to, &from, waits);
    }
    storage_release(stage);
    return result;
}

static int
download(const queue_call *call, const array_side *dst, const array_side *src)
{
    strided_layout dense;
    work_items from = items_of(src);
    metal_storage *stage = new_stage(call, &src->layout, &dense);
    int result = -1;
    if (stage != NULL) {
        work_items to = {stage, 0, &dense};
        result = run_copy(call, &to, &from, true);
    }
    if (result == 1 && copy_on_cpu(&dst->layout, address_of(dst), &dense, stage->address) < 0) {
        result = -1;
    }
    storage_release(stage);
    return result;
}

/* ---- copies ---- */

static int
copy_arrays(const char *function, const array_side *dst, const array_side *src,
            metal_stream *stream)
{
    queue_call call;
    bool is_for_gpu =
        stream != NULL || is_private(dst) || is_private(src) || is_busy(dst) || is_busy(src);
    if (!is_for_gpu || array_storage(dst->array)->device != array_storage(src->array)->device ||
        !begin_call(function, dst->array, stream, &call)) {
        return 0;
    }
    work_items to = items_of(dst), from = items_of(src);
    bool waits = stream == NULL && !(is_out_of_sight(dst) && is_out_of_sight(src));
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
        bool waits = stream == NULL && !is_out_of_sight(dst);
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
    bool is_for_gpu = stream != NULL || is_private(&side) || is_busy(&side);
    if (!is_for_gpu || side.layout.itemsize > LONGEST_ITEM ||
        !begin_call(function, dst, stream, &call)) {
        return 0;
    }
    uint64_t value;
    bridge_error error = {0};
    bridge_status status;
    work_items to = items_of(&side);
    bool waits = stream == NULL && !is_out_of_sight(&side); /* afterwards it is busy */
    Py_BEGIN_ALLOW_THREADS
    status = work_items_fill(call.stream, &to, item, &value, &error);
    Py_END_ALLOW_THREADS
    int result = finish(&call, status, &error, to.storage->nbytes);
    return result == 1 && waits ? wait_until(&call, value) : result;
}
