/* layout_order.c: the order of a layout's strides, and what follows from it; see layout.h. */
#include "arithmetic/layout.h"

/* |stride|, correct for INT64_MIN too. */
static inline uint64_t
measure_stride(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

/* Does axis `a` come before a later axis `b`? */
static inline bool
is_ordered(const strided_layout *in, int a, int b)
{
    uint64_t stride_a = measure_stride(in->strides[a]);
    uint64_t stride_b = measure_stride(in->strides[b]);
    if (stride_a != stride_b) {
        return stride_a > stride_b;
    }
    return in->shape[a] >= in->shape[b];
}

void
layout_stride_order(const strided_layout *in, int *axes)
{
    for (int axis = 0; axis < in->ndim; axis++) {
        int place = axis;
        for (; place > 0 && !is_ordered(in, axes[place - 1], axis); place--) {
            axes[place] = axes[place - 1];
        }
        axes[place] = axis;
    }
}

bool
layout_is_contiguous_any(const strided_layout *in)
{
    int axes[LAYOUT_MAX_NDIM];
    int64_t expected = 1;
    if (layout_is_empty(in)) {
        return true;
    }
    layout_stride_order(in, axes);
    for (int place = in->ndim - 1; place >= 0; place--) {
        int64_t extent = in->shape[axes[place]];
        if (extent == 1) {
            continue;
        }
        if (in->strides[axes[place]] != expected) {
            return false;
        }
        expected *= extent; /* the volume at most */
    }
    return true;
}

bool
layout_is_unique(const strided_layout *in)
{
    int axes[LAYOUT_MAX_NDIM];
    /* how far all shorter strides go together: below 2^64, as both bounds fit int64 */
    uint64_t reach = 0;
    if (layout_is_empty(in)) {
        return true;
    }
    layout_stride_order(in, axes);
    for (int place = in->ndim - 1; place >= 0; place--) {
        int64_t extent = in->shape[axes[place]];
        uint64_t stride = measure_stride(in->strides[axes[place]]);
        if (extent == 1) {
            continue;
        }
        if (stride <= reach) {
            return false;
        }
        reach += (uint64_t)(extent - 1) * stride;
    }
    return true;
}

bool
layout_set_ordered(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
                   const int *axes, layout_fault *fault)
{
    /* Check the shape and its product in C order; every order has the same product. */
    if (!layout_set_dense(out, ndim, shape, itemsize, 'C', fault)) {
        return false;
    }
    uint64_t seen = 0;
    int64_t items = 1;
    for (int place = ndim - 1; place >= 0; place--) {
        int axis = axes[place];
        if (axis < 0 || axis >= ndim) {
            /* unreached: the fuzzers reach it */
            return layout_fail(fault, LAYOUT_FAULT_AXIS, axis, ndim);
        }
        if (seen >> axis & 1) {
            return layout_fail(fault, LAYOUT_FAULT_AXIS_TWICE, axis, 0);
        }
        seen |= UINT64_C(1) << axis;
        out->strides[axis] = items;
        items *= shape[axis];
    }
    if (items == 0) {
        memset(out->strides, 0, (size_t)ndim * sizeof *out->strides);
    }
    return true;
}

/* ---- axes that can be one ---- */

/* Do all items of `axis` together make one step of the axis before it? */
static inline bool
goes_on(const strided_layout *in, int64_t stride_before, int axis)
{
    int64_t whole;
    return layout_multiply(in->shape[axis], in->strides[axis], &whole) &&
           whole == stride_before;
}

uint64_t
layout_merge_mask(const strided_layout *in)
{
    uint64_t mask = 0;
    for (int axis = 1; axis < in->ndim; axis++) {
        mask |= (uint64_t)goes_on(in, in->strides[axis - 1], axis) << axis;
    }
    return mask;
}

void
layout_merged(const strided_layout *in, uint64_t mask, strided_layout *out)
{
    int last = 0; /* of `out`, the axis that grows */
    int ndim = in->ndim;
    if (ndim == 0) {
        layout_copy(in, out);
        out->ndim = 1;
        out->shape[0] = out->strides[0] = 1;
        return;
    }
    out->itemsize = in->itemsize;
    out->offset = in->offset;
    out->shape[0] = in->shape[0];
    out->strides[0] = in->strides[0];
    for (int axis = 1; axis < ndim; axis++) {
        bool is_joined = (mask >> axis & 1) && goes_on(in, out->strides[last], axis);
        int64_t extent = in->shape[axis];
        last += !is_joined;
        /* the volume at most */
        out->shape[last] = is_joined ? out->shape[last] * extent : extent;
        out->strides[last] = in->strides[axis];
    }
    out->ndim = last + 1;
}
