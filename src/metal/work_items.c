/* work_items.c: see work_items.h. */
#include "metal/work_items.h"

#include "metal/copy_grid.h"

#define BLIT_UNIT 4 /* SPEC MTLBlitCommandEncoder copyFromBuffer: offsets and sizes on macOS */

/* ---- what is encoded ---- */

/* A place in a storage that the CPU may not see: plans count addresses from here. */
static char *const imagined = (char *)((uintptr_t)1 << 46);

/* Where a plan's addresses begin: the CPU's, so that two buffers over one memory are seen to
 * overlap. */
static char *
base_of(const metal_storage *storage)
{
    return storage->address != NULL ? storage->address : imagined;
}

typedef struct copy_job {
    const device_record *device;
    const copy_plan *plans; /* one after the other */
    int count;
    int units[2]; /* of each plan: an index of copy_kernels; submit_job sets both */
    bridge_kernel *kernels[2];  /* borrowed */
    metal_storage *const *dsts; /* of each plan */
    metal_storage *const *srcs; /* a NULL stands for `item` */
    const char *item;
    size_t item_nbytes;
} copy_job;

static bridge_status
encode_grid(bridge_commands *commands, const copy_job *job, const copy_grid *grid, int index)
{
    const metal_storage *src = job->srcs[index];
    const bridge_argument arguments[] = {
        {.index = 0, .buffer = job->dsts[index]->handle},
        {.index = 1,
         .buffer = src == NULL ? NULL : src->handle,
         .bytes = job->item,
         .nbytes = job->item_nbytes},
        {.index = 2, .bytes = grid->shape, .nbytes = grid->shape_nbytes},
    };
    const bridge_grid threads = {
        .size = {grid->extents[0], grid->extents[1], grid->extents[2]}};
    return bridge_encode_kernel(commands, true, job->kernels[index], arguments, 3, &threads);
}

static const char *
src_base(const copy_job *job, int index)
{
    const metal_storage *src = job->srcs[index];
    return src == NULL ? job->item : base_of(src);
}

static bridge_status
encode_plan(bridge_commands *commands, const copy_job *job, const copy_plan *plan, int index)
{
    copy_grid grid;
    if (copy_grid_make(plan, job->units[index], base_of(job->dsts[index]), src_base(job, index),
                       &grid)) {
        return encode_grid(commands, job, &grid, index);
    }
    copy_plan first, second;
    /* unreached: the fuzzers reach it */
    copy_grid_halve(plan, job->units[index], &first, &second);
    bridge_status status = encode_plan(commands, job, &first, index);
    return status == BRIDGE_OK ? encode_plan(commands, job, &second, index) : status;
}

static bridge_status
encode_job(bridge_commands *commands, void *context)
{
    const copy_job *job = context;
    bridge_status status = BRIDGE_OK;
    for (int i = 0; status == BRIDGE_OK && i < job->count; i++) {
        status = encode_plan(commands, job, &job->plans[i], i);
    }
    return status;
}

/* The kernels are there before the lock that orders submissions is taken. */
static bridge_status
submit_job(metal_stream *stream, timeline_kind kind, const work_operand *operands, int count,
           copy_job *job, uint64_t *value)
{
    for (int i = 0; i < job->count; i++) {
        int unit = copy_grid_kernel(&job->plans[i], base_of(job->dsts[i]), src_base(job, i));
        job->units[i] = unit;
        bridge_status status =
            device_kernel_load(&copy_kernels[unit], job->device, &job->kernels[i]);
        if (status != BRIDGE_OK) {
            return status;
        }
    }
    work_look look = {kind, timeline_on() ? (size_t)copy_plan_nbytes(&job->plans[0]) : 0};
    return work_submit(stream, look, operands, count, encode_job, job, NULL, value);
}

/* ---- the ways of a copy ---- */

/* The bytes as one blit, where Metal takes them. */
static bool
find_blit(const copy_plan *plan, const work_items *dst, const work_items *src, bridge_run *out)
{
    out->dst_offset_bytes = (size_t)(plan->dst - base_of(dst->storage));
    out->src_offset_bytes = (size_t)(plan->src - base_of(src->storage));
    out->nbytes = (size_t)plan->run;
    return plan->naxes == 0 &&
           (out->dst_offset_bytes | out->src_offset_bytes | out->nbytes) % BLIT_UNIT == 0;
}

static bridge_status
run_direct(metal_stream *stream, const copy_plan *plan, const work_items *dst,
           const work_items *src, uint64_t *value)
{
    bridge_run run;
    if (find_blit(plan, dst, src, &run)) {
        return work_copy(stream, src->storage, dst->storage, &run, 1, value);
    }
    copy_job job = {.device = stream->device,
                    .plans = plan,
                    .count = 1,
                    .dsts = &dst->storage,
                    .srcs = &src->storage};
    const work_operand operands[] = {{src->storage, false}, {dst->storage, true}};
    return submit_job(stream, TIMELINE_COPY, operands, 2, &job, value);
}

/* Source and destination overlap: through private memory, in one piece of work. */
static bridge_status
run_through_buffer(metal_stream *stream, const copy_plan *plan, const work_items *dst,
                   const work_items *src, uint64_t *value)
{
    metal_storage *between;
    copy_plan plans[2];
    bridge_status status =
        storage_new(stream->device, (size_t)copy_plan_nbytes(plan), BRIDGE_PRIVATE, &between);
    if (status != BRIDGE_OK) {
        return status;
    }
    copy_plan_pack(plan, base_of(between), &plans[0], &plans[1]);
    metal_storage *dsts[] = {between, dst->storage}, *srcs[] = {src->storage, between};
    copy_job job = {
        .device = stream->device, .plans = plans, .count = 2, .dsts = dsts, .srcs = srcs};
    const work_operand operands[] = {{src->storage, false},
                                     {dst->storage, true},
                                     {between, true}};
    status = submit_job(stream, TIMELINE_COPY, operands, 3, &job, value);
    storage_release(between); /* the work keeps it */
    return status;
}

/* Two private buffers share no memory; one buffer does with itself, and two do that the CPU sees
 * at the same addresses. */
static bool
share_memory(const metal_storage *dst, const metal_storage *src)
{
    return dst->handle == src->handle || (dst->address != NULL && src->address != NULL &&
                                          dst->address < src->address + src->nbytes &&
                                          src->address < dst->address + dst->nbytes);
}

bridge_status
work_items_copy(metal_stream *stream, const work_items *dst, const work_items *src,
                uint64_t *value)
{
    copy_plan plan;
    *value = 0;
    if (!copy_plan_make(dst->layout, base_of(dst->storage) + dst->offset_bytes, src->layout,
                        base_of(src->storage) + src->offset_bytes, &plan)) {
        return BRIDGE_OK; /* unreached: callers have items */
    }
    return share_memory(dst->storage, src->storage) && copy_plan_may_overlap(&plan)
               ? run_through_buffer(stream, &plan, dst, src, value)
               : run_direct(stream, &plan, dst, src, value);
}

bridge_status
work_items_fill(metal_stream *stream, const work_items *dst, const void *item, uint64_t *value)
{
    copy_plan plan;
    metal_storage *no_storage = NULL;
    *value = 0;
    if (!copy_plan_make(dst->layout, base_of(dst->storage) + dst->offset_bytes, NULL, item,
                        &plan)) {
        return BRIDGE_OK; /* unreached: callers have items */
    }
    copy_job job = {.device = stream->device,
                    .plans = &plan,
                    .count = 1,
                    .dsts = &dst->storage,
                    .srcs = &no_storage,
                    .item = item,
                    .item_nbytes = (size_t)dst->layout->itemsize};
    work_operand operand = {dst->storage, true};
    return submit_job(stream, TIMELINE_FILL, &operand, 1, &job, value);
}
