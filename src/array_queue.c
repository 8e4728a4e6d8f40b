/* array_queue.c: see array_queue.h.
 *
 * Calls:   copy_plan.h for the runs, work.h to submit them, storage.h for staging memory.
 */
#include "array_queue.h"

#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "copy_plan.h"
#include "errors.h"
#include "work.h"

#define MOST_RUNS 1024   /* in one command buffer; more are for a kernel, or the CPU */
#define STAGE_PATTERN 65536 /* bytes of a repeated item, as a rule */
#define BLIT_UNIT 4      /* SPEC MTLBlitCommandEncoder, on macOS */

/* ---- a plan as runs ---- */

/* Offsets in the two buffers stand for addresses: nothing is read through them. */
static char *
as_address(int64_t offset_bytes)
{
    return (char *)(intptr_t)offset_bytes;
}

static size_t
as_offset(const char *address)
{
    return (size_t)(intptr_t)address;
}

static int64_t
count_runs(const copy_plan *plan)
{
    int64_t count = 1;
    for (int axis = 0; axis < plan->naxes && count <= MOST_RUNS; axis++) {
        count = plan->axes[axis].extent > MOST_RUNS ? MOST_RUNS + 1 : count * plan->axes[axis].extent;
    }
    return count;
}

static bool
is_in_units(const copy_plan *plan)
{
    bool result = plan->run % BLIT_UNIT == 0 && as_offset(plan->dst) % BLIT_UNIT == 0 &&
                  as_offset(plan->src) % BLIT_UNIT == 0;
    for (int axis = 0; axis < plan->naxes; axis++) {
        result = result && plan->axes[axis].dst_step % BLIT_UNIT == 0 &&
                 plan->axes[axis].src_step % BLIT_UNIT == 0;
    }
    return result;
}

/* The last bytes of two buffers may be fewer than a unit: the bytes behind those of a buffer of ours are
 * nobody's, and so the run can be a little longer. */
static void
round_up_last_run(copy_plan *plan, const metal_storage *dst, const metal_storage *src)
{
    size_t end = as_offset(plan->dst) + (size_t)plan->run;
    size_t longer = ((size_t)plan->run + BLIT_UNIT - 1) / BLIT_UNIT * BLIT_UNIT;
    if (plan->naxes == 0 && dst->is_ours && end == dst->nbytes &&
        as_offset(plan->src) + longer <= bridge_buffer_nbytes(src->handle)) {
        plan->run = (int64_t)longer;
    }
}

/* The offsets of all runs, by the axes from the innermost out. */
static void
list_runs(const copy_plan *plan, bridge_run *runs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, dst = 0, src = 0;
        for (int axis = plan->naxes - 1; axis >= 0; axis--) {
            int64_t place = rest % plan->axes[axis].extent;
            rest /= plan->axes[axis].extent;
            dst += place * plan->axes[axis].dst_step;
            src += place * plan->axes[axis].src_step;
        }
        runs[i] = (bridge_run){as_offset(plan->src + src), as_offset(plan->dst + dst),
                               (size_t)plan->run};
    }
}

static int
submit_copy(const char *function, md_state *state, metal_stream *stream, metal_storage *dst,
            metal_storage *src, const bridge_run *runs, size_t count)
{
    uint64_t value;
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = work_copy(stream, src, dst, runs, count, &value);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state, function, status, NULL, dst->nbytes);
        return -1;
    }
    return 1;
}

static int
submit_plan(const char *function, md_state *state, metal_stream *stream, metal_storage *dst,
            metal_storage *src, const copy_plan *plan)
{
    bridge_run few[16];
    int64_t count = count_runs(plan);
    bridge_run *runs = count <= 16 ? few : malloc((size_t)count * sizeof *runs);
    if (runs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    list_runs(plan, runs, count);
    int result = submit_copy(function, state, stream, dst, src, runs, (size_t)count);
    if (runs != few) {
        free(runs);
    }
    return result;
}

/* ---- staging ---- */

/* Shared memory that lives until the work that reads it is done: owned (+1), NULL with MemoryError. */
static metal_storage *
new_stage(const char *function, md_state *state, const device_record *device, size_t nbytes)
{
    metal_storage *stage;
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_new(device, nbytes, BRIDGE_SHARED, &stage);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state, function, status, NULL, nbytes);
    }
    return stage;
}

/* The items of `src`, densely, as they are now. */
static metal_storage *
stage_items(const char *function, md_state *state, const device_record *device,
            const strided_layout *dense, const array_side *src)
{
    size_t nbytes = (size_t)(layout_volume(dense) * dense->itemsize);
    metal_storage *stage = new_stage(function, state, device, nbytes);
    const char *origin = src->origin;
    if (stage == NULL) {
        return NULL;
    }
    if (src->array != NULL) {
        origin = array_storage(src->array)->address + src->array->byte_offset;
    }
    bool is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = copy_strided(dense, stage->address, &src->layout, origin);
    Py_END_ALLOW_THREADS
    if (!is_done) {
        storage_release(stage);
        PyErr_NoMemory();
        return NULL;
    }
    return stage;
}

/* ---- copies ---- */

static bool
can_be_blits(copy_plan *plan, const metal_storage *dst, const metal_storage *src)
{
    round_up_last_run(plan, dst, src);
    return is_in_units(plan) && count_runs(plan) <= MOST_RUNS;
}

static int
copy_staged(const char *function, const array_side *dst, const array_side *src,
            metal_stream *stream)
{
    md_state *state = state_of((PyObject *)dst->array);
    metal_storage *to = array_storage(dst->array);
    strided_layout dense;
    layout_fault fault;
    copy_plan plan;
    if (!layout_set_dense(&dense, dst->layout.ndim, dst->layout.shape, dst->layout.itemsize, 'C',
                          &fault) ||
        !copy_plan_make(&dst->layout, as_address(dst->array->byte_offset), &dense, as_address(0),
                        &plan) ||
        !is_in_units(&plan) || count_runs(&plan) > MOST_RUNS) {
        return 0;
    }
    metal_storage *stage = stage_items(function, state, to->device, &dense, src);
    if (stage == NULL) {
        return -1;
    }
    int result = submit_plan(function, state, stream, to, stage, &plan);
    storage_release(stage); /* the work holds it */
    return result;
}

/* Memory that its owner can change behind our back as soon as the call returns. */
static bool
must_be_staged(const array_side *src)
{
    return src->array == NULL ||
           (src->kept != NULL && array_storage(src->array)->mode == BRIDGE_SHARED);
}

int
array_queue_copy(const char *function, const array_side *dst, const array_side *src,
                 metal_stream *stream)
{
    metal_storage *to = array_storage(dst->array);
    copy_plan plan;
    if (to->device != stream->device) {
        return 0;
    }
    if (must_be_staged(src)) {
        return copy_staged(function, dst, src, stream);
    }
    metal_storage *from = array_storage(src->array);
    if (from->device != stream->device || from->handle == to->handle ||
        !copy_plan_make(&dst->layout, as_address(dst->array->byte_offset), &src->layout,
                        as_address(src->array->byte_offset), &plan) ||
        !can_be_blits(&plan, to, from)) {
        return 0;
    }
    return submit_plan(function, state_of((PyObject *)dst->array), stream, to, from, &plan);
}

/* ---- fills ---- */

static bool
is_one_byte(const char *item, int64_t itemsize)
{
    for (int64_t i = 1; i < itemsize; i++) {
        if (item[i] != item[0]) {
            return false;
        }
    }
    return true;
}

static int
fill_bytes(const char *function, md_state *state, metal_stream *stream, metal_storage *dst,
           size_t offset_bytes, size_t nbytes, char byte)
{
    uint64_t value;
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = work_fill(stream, dst, offset_bytes, nbytes, (uint8_t)byte, &value);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state, function, status, NULL, nbytes);
        return -1;
    }
    return 1;
}

/* Some items side by side in staging memory, copied as often as it takes. */
static int
fill_pattern(const char *function, md_state *state, metal_stream *stream, metal_storage *dst,
             size_t offset_bytes, size_t nbytes, const char *item, size_t itemsize)
{
    size_t unit = itemsize * BLIT_UNIT; /* whole items, whole blit units */
    size_t chunk = nbytes / MOST_RUNS > STAGE_PATTERN ? nbytes / MOST_RUNS + unit : STAGE_PATTERN;
    chunk = chunk / unit * unit;
    chunk = chunk < nbytes ? chunk : nbytes;
    size_t count = (nbytes + chunk - 1) / chunk;
    bridge_run *runs = malloc(count * sizeof *runs);
    metal_storage *stage = runs == NULL ? NULL : new_stage(function, state, dst->device, chunk);
    if (stage == NULL) {
        free(runs);
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    for (size_t done = 0; done < chunk; done += itemsize) {
        memcpy(stage->address + done, item, itemsize);
    }
    for (size_t i = 0; i < count; i++) {
        size_t left = nbytes - i * chunk;
        runs[i] = (bridge_run){0, offset_bytes + i * chunk, left < chunk ? left : chunk};
    }
    int result = submit_copy(function, state, stream, dst, stage, runs, count);
    storage_release(stage);
    free(runs);
    return result;
}

int
array_queue_fill(const char *function, ArrayObject *dst, const char *item, metal_stream *stream)
{
    metal_storage *to = array_storage(dst);
    md_state *state = state_of((PyObject *)dst);
    strided_layout layout;
    array_get_layout(dst, &layout);
    size_t offset = (size_t)dst->byte_offset, nbytes = (size_t)array_nbytes(dst);
    bool is_dense = layout_is_contiguous_c(&layout) || layout_is_contiguous_f(&layout);
    bool ends_ours = to->is_ours && offset + nbytes == to->nbytes;
    if (to->device != stream->device || !is_dense || nbytes == 0 || offset % BLIT_UNIT != 0 ||
        (nbytes % BLIT_UNIT != 0 && !ends_ours)) {
        return 0;
    }
    nbytes = (nbytes + BLIT_UNIT - 1) / BLIT_UNIT * BLIT_UNIT; /* see round_up_last_run */
    if (is_one_byte(item, layout.itemsize)) {
        return fill_bytes(function, state, stream, to, offset, nbytes, item[0]);
    }
    return fill_pattern(function, state, stream, to, offset, nbytes, item, (size_t)layout.itemsize);
}
