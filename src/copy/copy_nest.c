/* copy_nest.c: chooses the two axes and the kernel for the inside of a plan, and loops round
 * them.
 *
 * Inside go the axis along which the destination is densest and the one along which the source
 * is: between them they use every line of memory whole.  The loops outside go from the axis
 * that jumps farthest on both sides to the one that stays nearest on either.
 */
#include "copy/copy_nest.h"

#include <string.h>

#include "copy/copy_kernels.h"
#include "copy/copy_vector.h"

#define BAND_NBYTES 128 /* rows of the destination shorter than this are joined to bands */

typedef struct {
    copy_kernel kernel;
    copy_block block;
    int naxes;
    copy_axis axes[LAYOUT_MAX_NDIM]; /* outside the block, outermost first */
} nest;

static int64_t
magnitude(int64_t step)
{
    return step < 0 ? -step : step;
}

/* The axis that goes in beside the last one: where the source is densest, if that is not the
 * last itself; else the next in destination order. */
static int
choose_outer(const copy_plan *plan)
{
    int last = plan->naxes - 1, chosen = last;
    for (int i = last - 1; i >= 0; i--) {
        int64_t step = magnitude(plan->axes[i].src_step);
        if (step != 0 && step < magnitude(plan->axes[chosen].src_step)) {
            chosen = i;
        }
    }
    return chosen == last ? last - 1 : chosen;
}

static int64_t
reach(const copy_axis *axis)
{
    int64_t src_step = magnitude(axis->src_step);
    return src_step < axis->dst_step ? src_step : axis->dst_step;
}

static void
insert_by_reach(nest *out, const copy_axis *axis)
{
    int at = out->naxes++;
    while (at > 0 && reach(&out->axes[at - 1]) < reach(axis)) {
        out->axes[at] = out->axes[at - 1];
        at--;
    }
    out->axes[at] = *axis;
}

static const copy_axis once = {1, 0, 0};

static void
choose_axes(const copy_plan *plan, nest *out)
{
    int last = plan->naxes - 1;
    int outer = last > 0 ? choose_outer(plan) : -1;
    out->block.inner = plan->axes[last];
    out->block.outer = outer >= 0 ? plan->axes[outer] : once;
    out->block.band = once;
    out->naxes = 0;
    for (int i = 0; i < last; i++) {
        if (i != outer) {
            insert_by_reach(out, &plan->axes[i]);
        }
    }
}

/* Move the axis that goes on where the inner one ends from the loops into the block. */
static void
take_band(nest *n)
{
    int64_t row_nbytes = n->block.inner.extent * n->block.run;
    for (int i = 0; i < n->naxes && row_nbytes < BAND_NBYTES; i++) {
        if (n->axes[i].dst_step == row_nbytes) {
            n->block.band = n->axes[i];
            n->naxes--;
            memmove(&n->axes[i], &n->axes[i + 1], sizeof(copy_axis) * (size_t)(n->naxes - i));
            return;
        }
    }
}

static void
choose_kernel(nest *n)
{
    n->kernel = copy_fill_kernel(&n->block);
    if (n->kernel == NULL) {
        n->kernel = copy_planes_kernel(&n->block);
    }
    if (n->kernel == NULL && (n->kernel = copy_turn_kernel(&n->block)) != NULL) {
        take_band(n);
    }
    if (n->kernel == NULL) {
        n->kernel = copy_runs_kernel(&n->block);
    }
}

static void
run_loops(const nest *n, char *dst, const char *src)
{
    int64_t at[LAYOUT_MAX_NDIM];
    memset(at, 0, sizeof(at[0]) * (size_t)n->naxes);
    for (;;) {
        n->kernel(&n->block, dst, src);
        int i = n->naxes - 1;
        for (; i >= 0; i--) {
            const copy_axis *axis = &n->axes[i];
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

void
copy_nest_run(const copy_plan *plan, int64_t nbytes)
{
    if (plan->naxes == 0) {
        copy_one_run(plan->dst, plan->src, plan->run);
        return;
    }
    nest n;
    n.block.run = plan->run;
    n.block.total_nbytes = nbytes;
    choose_axes(plan, &n);
    choose_kernel(&n);
    run_loops(&n, plan->dst, plan->src);
    if (nbytes >= VEC_STREAM_NBYTES) {
        vec_stream_end();
    }
}
