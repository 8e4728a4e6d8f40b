/* array_queue.c: see array_queue.h.
 *
 * Calls:   work_items.h for the work, copy.h where one side is CPU memory, waiting.h.
 */
#include "array/array_queue.h"

#include "array/array_methods.h"
#include "copy/copy.h"
#include "metal/work_items.h"
#include "python/errors.h"
#include "python/waiting.h"
#include "streams/stream_protocol.h"
#include "streams/wait_rule.h"

#define LONGEST_ITEM 4096 /* SPEC MTLComputeCommandEncoder setBytes:length:atIndex: */

/* ---- who does it ---- */

/* Does the CPU not reach them? */
static bool
is_private(const ArrayObject *array)
{
    return array != NULL && array_storage(array)->mode == BRIDGE_PRIVATE;
}

/* Is it the caller's Array, and not one made for this call over foreign memory? */
static bool
is_array(const array_side *side)
{
    return side->array != NULL && (side->kept == NULL || is_private(side->array));
}

/* ---- in a timeline ---- */

static void
show_side(const array_side *side, const void **handle, uint32_t *mode)
{
    const metal_storage *storage = side->array == NULL ? NULL : array_storage(side->array);
    *handle = storage == NULL ? NULL : storage->handle;
    *mode = storage == NULL ? TIMELINE_CPU : storage->mode;
}

void
array_side_show_copy(const char *function, const array_side *dst, const array_side *src,
                     double started)
{
    if (started == 0) { /* before the record is made, which is long */
        return;
    }
    timeline_record copy = {0};
    show_side(dst, &copy.dst, &copy.dst_mode);
    show_side(src, &copy.src, &copy.src_mode);
    copy.nbytes = (size_t)(layout_volume(&dst->layout) * dst->layout.itemsize);
    place_note();
    timeline_name(function);
    timeline_computed(started, TIMELINE_COPY, copy);
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

/* Copy the items of `src`, or write `item` everywhere where that is NULL. */
static int
run(const queue_call *call, const work_items *dst, const work_items *src, const char *item,
    bool waits)
{
    uint64_t value;
    timeline_name(call->function);
    bridge_status status =
        WITHOUT_GIL(src != NULL ? work_items_copy(call->stream, dst, src, &value)
                                : work_items_fill(call->stream, dst, item, &value));
    if (errors_check_status(call->state, call->function, status, NULL, dst->storage->nbytes) <
        0) {
        return -1;
    }
    return waits && waiting_for_stream(call->state, call->function, call->stream, value,
                                       STREAM_FOREVER) < 0
               ? -1
               : 1;
}

/* ---- memory that Metal does not know, or that its owner may change once we return ---- */

static char *
address_of(const array_side *side)
{
    return side->array == NULL ? side->origin
                               : array_storage(side->array)->address + side->array->byte_offset;
}

/* Shared memory for items like these, dense: owned (+1).  NULL with MemoryError. */
static metal_storage *
make_stage(const queue_call *call, const strided_layout *like, strided_layout *dense)
{
    layout_fault fault;
    if (!layout_set_dense(dense, like->ndim, like->shape, like->itemsize, 'C', &fault)) {
        /* unreached: no test makes it fail here */
        (void)errors_from_layout(call->state, call->function, &fault);
        return NULL;
    }
    size_t nbytes = (size_t)(layout_volume(dense) * dense->itemsize);
    return buffer_allocate_storage(call->state, call->function, call->stream->device, nbytes,
                                   BRIDGE_SHARED);
}

/* On the CPU: nobody else has the stage, so the two do not overlap, and it cannot fail. */
static void
copy_nogil(const strided_layout *dst, char *to, const strided_layout *src, const char *from)
{
    Py_BEGIN_ALLOW_THREADS(void)
    copy_strided(dst, to, src, from);
    Py_END_ALLOW_THREADS
}

static int
upload(const queue_call *call, const array_side *dst, const array_side *src, bool waits)
{
    strided_layout dense;
    metal_storage *stage = make_stage(call, &dst->layout, &dense);
    if (stage == NULL) {
        return -1;
    }
    double started = timeline_begin();
    copy_nogil(&dense, stage->address, &src->layout, address_of(src));
    array_side_show_copy(call->function, dst, src, started);
    work_items to = items_of(dst), from = {stage, 0, &dense};
    int result = run(call, &to, &from, NULL, waits);
    storage_release(stage); /* the work keeps it */
    return result;
}

static int
download(const queue_call *call, const array_side *dst, const array_side *src)
{
    strided_layout dense;
    metal_storage *stage = make_stage(call, &src->layout, &dense);
    if (stage == NULL) {
        return -1;
    }
    work_items to = {stage, 0, &dense}, from = items_of(src);
    int result = run(call, &to, &from, NULL, true);
    if (result == 1) {
        double started = timeline_begin();
        copy_nogil(&dst->layout, address_of(dst), &dense, stage->address);
        array_side_show_copy(call->function, dst, src, started);
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
    bool is_queued = stream != NULL || is_private(dst->array) || is_private(src->array);
    if (!is_queued || array_storage(dst->array)->device != array_storage(src->array)->device ||
        !begin_call(function, dst->array, stream, &call)) {
        return 0;
    }
    work_items to = items_of(dst), from = items_of(src);
    bool waits = stream == NULL && wait_rule_after_work(to.storage, from.storage);
    return run(&call, &to, &from, NULL, waits);
}

int
array_queue_copy(const char *function, const array_side *dst, const array_side *src,
                 metal_stream *stream)
{
    queue_call call;
    if (is_array(dst) && is_array(src)) {
        return copy_arrays(function, dst, src, stream);
    }
    if (is_array(dst) && (stream != NULL || is_private(dst->array))) {
        bool waits = stream == NULL && wait_rule_after_work(array_storage(dst->array), NULL);
        return begin_call(function, dst->array, stream, &call) ? upload(&call, dst, src, waits)
                                                               : 0;
    }
    if (!is_array(dst) && is_private(src->array)) {
        return begin_call(function, src->array, stream, &call) ? download(&call, dst, src) : 0;
    }
    return 0;
}

/* ---- fills ---- */

int
array_queue_fill(const char *function, ArrayObject *dst, const char *item, metal_stream *stream)
{
    queue_call call;
    strided_layout layout;
    bool is_queued = stream != NULL || is_private(dst);
    if (!is_queued || dtype_itemsize(dst->dtype) > LONGEST_ITEM ||
        !begin_call(function, dst, stream, &call)) {
        return 0;
    }
    array_get_layout(dst, &layout);
    work_items to = {array_storage(dst), dst->byte_offset, &layout};
    bool waits = stream == NULL && wait_rule_after_work(to.storage, NULL);
    return run(&call, &to, NULL, item, waits);
}

/* ---- for others to wait ---- */

const char array_doc_metal_stream[] =
    "__metal_stream__($self, /)\n--\n\n"
    "What to wait for on the GPU before using the buffer.\n\n"
    "Returns\n-------\n"
    "tuple of int\n"
    "    (version, queue, event, value): 1, the id<MTLCommandQueue> that last worked on the\n"
    "    buffer or the default stream's, the id<MTLSharedEvent> and the value it has once our\n"
    "    work in flight on the buffer is done; 0, which every event has reached, if there is\n"
    "    none.  Borrowed from the stream.\n\n"
    "Raises\n------\nMetalError\n    Metal gave no queue or command buffer.\n\n"
    "Source: docs/metal_stream.md.";

PyObject *
array_method_metal_stream(PyObject *op, PyObject *Py_UNUSED(unused))
{
    metal_storage *storage = array_storage(array_cast(op));
    metal_stream *stream = stream_default(storage->device);
    stream_mark mark = {0};
    bridge_status status = stream_default_status();
    if (stream != NULL) {
        status = WITHOUT_GIL(work_mark_storage(stream, storage, &mark));
    }
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state_of(op), "Array.__metal_stream__", status, NULL, 0);
    }
    PyObject *answer = stream_protocol_answer(mark.stream, mark.value);
    stream_release(mark.stream);
    return answer;
}
