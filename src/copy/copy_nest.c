/* copy_nest.c: chooses two axes of a plan and a road for them, and loops over the others.
 *
 * Inside go the axis along which the destination is densest and the one along which the source
 * is: between them they use every line of memory whole.
 */
#include "copy/copy_plan.h"

#include <string.h>

#include "copy/copy_roads.h"

typedef struct {
    copy_road road;
    copy_block block;
    int naxes;
    copy_axis axes[LAYOUT_MAX_NDIM]; /* outside the block, outermost first */
} nest;

/* The axis that goes in beside the last one: where the source is densest, if that is not the
 * last itself; else the next in destination order. */
static int
choose_outer(const copy_plan *plan)
{
    int last = plan->naxes - 1, chosen = last;
    for (int i = last - 1; i >= 0; i--) {
        uint64_t step = layout_absolute(plan->axes[i].src_step);
        if (step != 0 && step < layout_absolute(plan->axes[chosen].src_step)) {
            chosen = i;
        }
    }
    return chosen == last ? last - 1 : chosen;
}

static const copy_axis once = {1, 0, 0};

static void
choose_axes(const copy_plan *plan, nest *out)
{
    int last = plan->naxes - 1;
    int outer = last > 0 ? choose_outer(plan) : -1;
    out->block.inner = plan->axes[last];
    out->block.outer = outer >= 0 ? plan->axes[outer] : once;
    out->naxes = 0;
    for (int i = 0; i < last; i++) {
        if (i != outer) {
            out->axes[out->naxes++] = plan->axes[i];
        }
    }
}

static copy_road
choose_road(const copy_block *block)
{
    copy_road road = copy_fill_road(block);
    road = road != NULL ? road : copy_planes_road(block);
    road = road != NULL ? road : copy_tiles_road(block);
    return road != NULL ? road : copy_runs_road(block);
}

static void
run_loops(const nest *n, char *dst, const char *src)
{
    int64_t at[LAYOUT_MAX_NDIM];
    memset(at, 0, sizeof(at[0]) * (size_t)n->naxes);
    for (;;) {
        n->road(&n->block, dst, src);
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
copy_nest_run(const copy_plan *plan)
{
    if (plan->naxes == 0) {
        memcpy(plan->dst, plan->src, (size_t)plan->run);
        return;
    }
    nest n;
    n.block.run = plan->run;
    choose_axes(plan, &n);
    n.road = choose_road(&n.block);
    if (n.naxes == 0) {
        n.road(&n.block, plan->dst, plan->src);
        return;
    }
    run_loops(&n, plan->dst, plan->src);
}
