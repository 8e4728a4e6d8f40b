/* copy.c: the doors of the copy engine, and the loop nest round its kernels.
 *
 * Owns:    the buffer that an overlapping copy goes through, for the time of the call.
 * Calls:   copy_plan.h for the shape of the work, copy_kernels.h for its inner loops.
 * Threads: pure functions over the caller's memory.
 */
#include "copy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "copy_kernels.h"
#include "copy_plan.h"

#define LARGE_NBYTES (16 << 20)

/* Call `kernel` for every position of the axes outside the block, in destination order. */
static void
run_nest(copy_kernel kernel, const copy_block *block, const copy_plan *plan, int nouter)
{
    int64_t at[LAYOUT_MAX_NDIM];
    memset(at, 0, sizeof(at[0]) * (size_t)nouter);
    char *dst = plan->dst;
    const char *src = plan->src;
    for (;;) {
        kernel(block, dst, src);
        int i = nouter - 1;
        for (; i >= 0; i--) {
            const copy_axis *axis = &plan->axes[i];
            dst += axis->dst_step;
            src += axis->src_step;
            if (++at[i] < axis->extent) {
                break;
            }
            dst -= axis->extent * axis->dst_step;
            src -= axis->extent * axis->src_step;
            at[i] = 0;
        }
        if (i < 0) {
            return;
        }
    }
}

static void
run_plan(const copy_plan *plan)
{
    const copy_axis once = {1, 0, 0};
    int naxes = plan->naxes;
    if (naxes == 0) {
        memcpy(plan->dst, plan->src, (size_t)plan->run);
        return;
    }
    copy_block block = {
        .run = plan->run,
        .outer = naxes > 1 ? plan->axes[naxes - 2] : once,
        .inner = plan->axes[naxes - 1],
        .is_large = copy_plan_nbytes(plan) >= LARGE_NBYTES,
    };
    copy_kernel kernel = copy_turn_kernel(&block);
    if (kernel == NULL) {
        kernel = copy_runs_kernel(plan->run);
    }
    run_nest(kernel, &block, plan, naxes > 2 ? naxes - 2 : 0);
}

/* ---- source and destination that share memory ---- */

static bool
is_copy_onto_itself(const copy_plan *plan)
{
    for (int i = 0; i < plan->naxes; i++) {
        if (plan->axes[i].dst_step != plan->axes[i].src_step) {
            return false;
        }
    }
    return plan->dst == plan->src;
}

static bool
run_through_buffer(const copy_plan *plan)
{
    char *buffer = malloc((size_t)copy_plan_nbytes(plan));
    if (buffer == NULL) {
        return false;
    }
    copy_plan pack, spread;
    copy_plan_pack(plan, buffer, &pack, &spread);
    run_plan(&pack);
    run_plan(&spread);
    free(buffer);
    return true;
}

static bool
run_overlapping(const copy_plan *plan)
{
    if (plan->naxes == 0) {
        memmove(plan->dst, plan->src, (size_t)plan->run);
        return true;
    }
    return is_copy_onto_itself(plan) || run_through_buffer(plan);
}

bool
copy_strided(const strided_layout *dst, char *dst_base, const strided_layout *src,
             const char *src_base)
{
    copy_plan plan;
    if (!copy_plan_make(dst, dst_base, src, src_base, &plan)) {
        return true;
    }
    if (copy_plan_may_overlap(&plan)) {
        return run_overlapping(&plan);
    }
    run_plan(&plan);
    return true;
}

void
copy_fill(const strided_layout *dst, char *dst_base, const char *item)
{
    copy_plan plan;
    if (copy_plan_make(dst, dst_base, NULL, item, &plan)) {
        run_plan(&plan);
    }
}
