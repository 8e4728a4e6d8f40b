/* copy_plan.c: see copy_plan.h.
 *
 * The products below cannot overflow: the destination's items are all distinct and lie in
 * memory, so extents times steps stay below the size of the address space.  Axes of extent 1,
 * whose strides may be anything, are dropped before their stride is multiplied. */
#include "copy/copy_plan.h"

#include <stddef.h>

/* Put `axis` where its destination step belongs; equal steps go by the source's. */
static void
insert_axis(copy_plan *plan, copy_axis axis)
{
    int at = plan->naxes++;
    while (at > 0) {
        const copy_axis *before = &plan->axes[at - 1];
        if (before->dst_step > axis.dst_step ||
            (before->dst_step == axis.dst_step && before->src_step >= axis.src_step)) {
            break;
        }
        plan->axes[at] = *before;
        at--;
    }
    plan->axes[at] = axis;
}

/* An axis walked backwards by the destination is walked from its other end. */
static void
add_axis(copy_plan *plan, int64_t extent, int64_t dst_step, int64_t src_step)
{
    if (dst_step < 0) {
        plan->dst += (extent - 1) * dst_step;
        plan->src += (extent - 1) * src_step;
        dst_step = -dst_step;
        src_step = -src_step;
    }
    insert_axis(plan, (copy_axis){extent, dst_step, src_step});
}

static bool
continues(const copy_axis *outer, const copy_axis *inner)
{
    return outer->dst_step == inner->extent * inner->dst_step &&
           outer->src_step == inner->extent * inner->src_step;
}

static void
merge_axes(copy_plan *plan)
{
    int last = 0;
    for (int i = 1; i < plan->naxes; i++) {
        if (continues(&plan->axes[last], &plan->axes[i])) {
            plan->axes[last].extent *= plan->axes[i].extent;
            plan->axes[last].dst_step = plan->axes[i].dst_step;
            plan->axes[last].src_step = plan->axes[i].src_step;
        }
        else {
            plan->axes[++last] = plan->axes[i];
        }
    }
    plan->naxes = plan->naxes == 0 ? 0 : last + 1;
}

/* Make one wide item of the items that lie side by side in both. */
static void
widen_run(copy_plan *plan)
{
    if (plan->naxes == 0) {
        return;
    }
    const copy_axis *inner = &plan->axes[plan->naxes - 1];
    if (inner->dst_step == plan->run && inner->src_step == plan->run) {
        plan->run *= inner->extent;
        plan->naxes--;
    }
}

bool
copy_plan_make(const strided_layout *dst, char *dst_base, const strided_layout *src,
               const char *src_base, copy_plan *out)
{
    int64_t itemsize = dst->itemsize;
    for (int i = 0; i < dst->ndim; i++) {
        if (dst->shape[i] == 0) {
            return false;
        }
    }
    out->dst = dst_base + dst->offset * itemsize;
    out->src = src == NULL ? src_base : src_base + src->offset * itemsize;
    out->run = itemsize;
    out->naxes = 0;
    for (int i = 0; i < dst->ndim; i++) {
        if (dst->shape[i] > 1) {
            add_axis(out, dst->shape[i], dst->strides[i] * itemsize,
                     src == NULL ? 0 : src->strides[i] * itemsize);
        }
    }
    merge_axes(out);
    widen_run(out);
    return true;
}

int64_t
copy_plan_nbytes(const copy_plan *plan)
{
    int64_t nbytes = plan->run;
    for (int i = 0; i < plan->naxes; i++) {
        nbytes *= plan->axes[i].extent;
    }
    return nbytes;
}

void
copy_plan_pack(const copy_plan *plan, char *buffer, copy_plan *pack, copy_plan *spread)
{
    *pack = *plan;
    *spread = *plan;
    pack->dst = buffer;
    spread->src = buffer;
    int64_t step = plan->run;
    for (int i = plan->naxes - 1; i >= 0; i--) {
        pack->axes[i].dst_step = step;
        spread->axes[i].src_step = step;
        step *= plan->axes[i].extent;
    }
}

/* All runs of both sides start at their first one plus a multiple of the steps' common divisor
 * g: seen modulo g they are two intervals, and where those are apart no byte is shared. */
static bool
interleaves(const copy_plan *plan)
{
    uint64_t common = 0;
    for (int i = 0; i < plan->naxes; i++) {
        common = layout_common_divisor(common, layout_absolute(plan->axes[i].dst_step));
        common = layout_common_divisor(common, layout_absolute(plan->axes[i].src_step));
    }
    int64_t divisor = (int64_t)common;
    if (divisor < 2 * plan->run) {
        return false;
    }
    int64_t apart = (int64_t)((intptr_t)plan->dst - (intptr_t)plan->src) % divisor;
    if (apart < 0) {
        apart += divisor;
    }
    return apart >= plan->run && divisor - apart >= plan->run;
}

bool
copy_plan_may_overlap(const copy_plan *plan)
{
    intptr_t dst_low = (intptr_t)plan->dst, dst_end = dst_low + plan->run;
    intptr_t src_low = (intptr_t)plan->src, src_end = src_low + plan->run;
    for (int i = 0; i < plan->naxes; i++) {
        const copy_axis *axis = &plan->axes[i];
        int64_t src_reach = (axis->extent - 1) * axis->src_step;
        dst_end += (axis->extent - 1) * axis->dst_step;
        *(src_reach < 0 ? &src_low : &src_end) += src_reach;
    }
    return dst_low < src_end && src_low < dst_end && !interleaves(plan);
}
