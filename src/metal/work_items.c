/* work_items.c: see work_items.h. */
#include "metal/work_items.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "metal/copy_grid.h"

#define BLIT_UNIT 4 /* SPEC MTLBlitCommandEncoder copyFromBuffer: offsets and sizes on macOS */

/* ---- the kernels ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What a device has of the compiler; filled behind the lock, under which nothing is compiled: that
 * may want the GIL, and whoever holds it the lock. */
static struct compiled {
    bridge_kernel *kernels[COPY_KERNEL_COUNT]; /* each owned (+1); the first one atomic */
    bool is_refused; /* atomic; the compiler has said why not, and is not asked again */
} compiled[DEVICES_MAX];

static void
release_kernels(bridge_kernel *const *kernels)
{
    for (int i = 0; i < COPY_KERNEL_COUNT; i++) {
        bridge_kernel_release(kernels[i]);
    }
}

/* All of them, each +1; on anything but BRIDGE_OK none, and `*message` as the bridge gives it. */
static bridge_status
make_kernels(const device_record *device, bridge_kernel **out, char **message)
{
    bridge_library *library;
    bool is_source;
    bridge_status status = bridge_library_new(device->handle, copy_kernel_source,
                                              BRIDGE_MATH_FAST, &library, message, &is_source);
    for (int i = 0; status == BRIDGE_OK && i < COPY_KERNEL_COUNT; i++) {
        status = bridge_kernel_new(library, copy_kernel_names[i], NULL, 0, &out[i], NULL,
                                   message, &is_source);
    }
    bridge_library_release(library);
    if (status != BRIDGE_OK) {
        release_kernels(out);
    }
    return status;
}

/* Takes over the kernels; those of the thread that came first stay. */
static void
publish_kernels(struct compiled *place, bridge_kernel *const *made)
{
    (void)pthread_mutex_lock(&lock);
    bool is_first = place->kernels[0] == NULL;
    if (is_first) {
        memcpy(place->kernels + 1, made + 1, sizeof place->kernels - sizeof *made);
        __atomic_store_n(&place->kernels[0], made[0], __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&lock);
    if (!is_first) {
        release_kernels(made);
    }
}

static bridge_status
load_kernels(const device_record *device)
{
    struct compiled *place = &compiled[device->index];
    if (bridge_is_forked()) { /* the lock may be held by a thread that is not here */
        return BRIDGE_FORKED;
    }
    if (__atomic_load_n(&place->kernels[0], __ATOMIC_ACQUIRE) != NULL) {
        return BRIDGE_OK;
    }
    if (__atomic_load_n(&place->is_refused, __ATOMIC_RELAXED)) {
        return BRIDGE_NO_KERNEL;
    }
    bridge_kernel *made[COPY_KERNEL_COUNT] = {NULL};
    char *message = NULL;
    bridge_status status = make_kernels(device, made, &message);
    if (status == BRIDGE_OK) {
        publish_kernels(place, made);
    }
    else if (message != NULL) { /* else it was interrupted */
        __atomic_store_n(&place->is_refused, true, __ATOMIC_RELAXED);
    }
    free(message);
    return status;
}

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
    bridge_kernel *kernel = compiled[job->device->index].kernels[grid->kernel];
    return bridge_encode_kernel(commands, kernel, arguments, 3, &threads);
}

static bridge_status
encode_plan(bridge_commands *commands, const copy_job *job, const copy_plan *plan, int index)
{
    const metal_storage *src = job->srcs[index];
    copy_grid grid;
    if (copy_grid_make(plan, base_of(job->dsts[index]), src == NULL ? job->item : base_of(src),
                       &grid)) {
        return encode_grid(commands, job, &grid, index);
    }
    copy_plan first, second;
    copy_grid_halve(plan, &first, &second);
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

/* ---- the ways of a copy ---- */

static bool
is_one_buffer(const metal_storage *a, const metal_storage *b)
{
    return a->handle == b->handle;
}

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
    bridge_status status = load_kernels(stream->device);
    if (status != BRIDGE_OK) {
        return status;
    }
    copy_job job = {stream->device, plan, 1, &dst->storage, &src->storage, NULL, 0};
    work_operand operands[] = {{src->storage, false}, {dst->storage, true}};
    bool is_one = is_one_buffer(src->storage, dst->storage); /* written, and counted once */
    return work_submit(stream, operands + is_one, 2 - is_one, encode_job, &job, value);
}

/* Source and destination overlap: through private memory, in one piece of work. */
static bridge_status
run_through_buffer(metal_stream *stream, const copy_plan *plan, const work_items *dst,
                   const work_items *src, uint64_t *value)
{
    metal_storage *between;
    copy_plan plans[2];
    bridge_status status = load_kernels(stream->device);
    if (status == BRIDGE_OK) {
        status = storage_new(stream->device, (size_t)copy_plan_nbytes(plan), BRIDGE_PRIVATE,
                             &between);
    }
    if (status != BRIDGE_OK) {
        return status;
    }
    copy_plan_pack(plan, base_of(between), &plans[0], &plans[1]);
    metal_storage *dsts[] = {between, dst->storage}, *srcs[] = {src->storage, between};
    copy_job job = {stream->device, plans, 2, dsts, srcs, NULL, 0};
    work_operand operands[] = {{between, true}, {dst->storage, true}, {src->storage, false}};
    bool is_one = is_one_buffer(src->storage, dst->storage);
    status = work_submit(stream, operands, 3 - is_one, encode_job, &job, value);
    storage_release(between); /* the work keeps it */
    return status;
}

/* Two private buffers share no memory; one buffer does with itself, and two may that the CPU
 * sees. */
static bool
may_overlap(const copy_plan *plan, const metal_storage *dst, const metal_storage *src)
{
    bool can_meet = is_one_buffer(dst, src) || (dst->address != NULL && src->address != NULL);
    return can_meet && copy_plan_may_overlap(plan);
}

bridge_status
work_items_copy(metal_stream *stream, const work_items *dst, const work_items *src,
                uint64_t *value)
{
    copy_plan plan;
    *value = 0;
    if (!copy_plan_make(dst->layout, base_of(dst->storage) + dst->offset_bytes, src->layout,
                        base_of(src->storage) + src->offset_bytes, &plan)) {
        return BRIDGE_OK;
    }
    return may_overlap(&plan, dst->storage, src->storage)
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
        return BRIDGE_OK;
    }
    bridge_status status = load_kernels(stream->device);
    if (status != BRIDGE_OK) {
        return status;
    }
    copy_job job = {stream->device,
                    &plan,
                    1,
                    &dst->storage,
                    &no_storage,
                    item,
                    (size_t)dst->layout->itemsize};
    work_operand operand = {dst->storage, true};
    return work_submit(stream, &operand, 1, encode_job, &job, value);
}
