/* layout_views.c: layouts over the same items in another shape; see layout.h.
 *
 * Rule:  a view never reaches outside what its source reaches, so only new shapes and
 *        broadcasts check for overflow again.
 */
#include "arithmetic/layout.h"

/* ---- parts ---- */

bool
layout_index_axis(const strided_layout *in, int axis, int64_t index, int64_t *offset,
                  layout_fault *fault)
{
    int64_t extent = in->shape[axis], steps;
    int64_t counted = index < 0 ? index + extent : index;
    if (counted < 0 || counted >= extent) {
        return layout_fail(fault, LAYOUT_FAULT_INDEX, index, extent);
    }
    /* The reach of an empty layout was never checked. */
    if (!layout_multiply(counted, in->strides[axis], &steps) ||
        !layout_add(*offset, steps, offset)) {
        return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
    }
    return true;
}

bool
layout_cut_axis(const strided_layout *in, int axis, int64_t start, int64_t length, int64_t step,
                int64_t *offset, int64_t *stride, layout_fault *fault)
{
    int64_t steps, nbytes;
    /* As above. */
    if (!layout_multiply(length > 0 ? start : 0, in->strides[axis], &steps) ||
        !layout_add(*offset, steps, offset)) {
        return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
    }
    /* With one item left or none no step is taken, and a long one need not fit. */
    if (!layout_multiply(in->strides[axis], step, stride) ||
        !layout_multiply(*stride, in->itemsize, &nbytes)) {
        *stride = in->strides[axis];
        return length <= 1 || layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
    }
    return true;
}

bool
layout_permuted(const strided_layout *in, int count, const int64_t *order, strided_layout *out,
                layout_fault *fault)
{
    strided_layout moved;
    int axes[LAYOUT_MAX_NDIM];
    uint64_t bits;
    if (count != in->ndim) {
        return layout_fail(fault, LAYOUT_FAULT_AXES, count, in->ndim);
    }
    if (!layout_axes(count, order, in->ndim, axes, &bits, fault)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        moved.shape[i] = in->shape[axes[i]];
        moved.strides[i] = in->strides[axes[i]];
    }
    moved.ndim = count;
    moved.itemsize = in->itemsize;
    moved.offset = in->offset;
    layout_copy(&moved, out);
    return true;
}

/* ---- axes of extent 1 ---- */

/* Without the axes whose bit is set. */
static void
drop_axes(const strided_layout *in, uint64_t bits, strided_layout *out)
{
    int kept = 0;
    for (int axis = 0; axis < in->ndim; axis++) {
        if (!(bits >> axis & 1)) {
            out->shape[kept] = in->shape[axis];
            out->strides[kept++] = in->strides[axis];
        }
    }
    out->ndim = kept;
    out->itemsize = in->itemsize;
    /* mutant survives (dropped assignment): who looks at it works in place */
    out->offset = in->offset;
}

bool
layout_squeezed_axes(const strided_layout *in, int count, const int64_t *given,
                     strided_layout *out, layout_fault *fault)
{
    int axes[LAYOUT_MAX_NDIM];
    uint64_t bits;
    if (!layout_axes(count, given, in->ndim, axes, &bits, fault)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (in->shape[axes[i]] != 1) {
            return layout_fail(fault, LAYOUT_FAULT_SQUEEZE, axes[i], in->shape[axes[i]]);
        }
    }
    drop_axes(in, bits, out);
    return true;
}

void
layout_squeezed(const strided_layout *in, strided_layout *out)
{
    uint64_t units = 0;
    for (int axis = 0; axis < in->ndim; axis++) {
        units |= (uint64_t)(in->shape[axis] == 1) << axis;
    }
    drop_axes(in, units, out);
}

int64_t
layout_unit_stride(const strided_layout *in, int axis)
{
    int64_t stride;
    bool fits = axis < in->ndim && layout_multiply(in->shape[axis], in->strides[axis], &stride);
    return fits ? stride : 1;
}

bool
layout_expanded(const strided_layout *in, int count, const int64_t *given, strided_layout *out,
                layout_fault *fault)
{
    int axis;
    (void)count; /* one */
    if (in->ndim == LAYOUT_MAX_NDIM) {
        return layout_fail(fault, LAYOUT_FAULT_NDIM, in->ndim + 1, 0);
    }
    if (!layout_axis(given[0], in->ndim + 1, &axis, fault)) {
        return false;
    }
    if (in != out) {
        layout_copy(in, out); /* unreached: its one caller works in place */
    }
    size_t nbytes = (size_t)(in->ndim - axis) * sizeof *out->shape;
    int64_t stride = layout_unit_stride(out, axis);
    memmove(out->shape + axis + 1, out->shape + axis, nbytes);
    memmove(out->strides + axis + 1, out->strides + axis, nbytes);
    out->shape[axis] = 1;
    out->strides[axis] = stride;
    out->ndim++;
    return true;
}

/* The stride with which the next axis goes on.  False: it does not fit in items or bytes. */
static bool
continue_stride(int64_t extent, int64_t stride, int64_t itemsize, int64_t *out)
{
    int64_t nbytes;
    return layout_multiply(extent, stride, out) && layout_multiply(*out, itemsize, &nbytes);
}

bool
layout_unsqueezed(const strided_layout *in, int count, const int64_t *given,
                  strided_layout *out, layout_fault *fault)
{
    int axes[LAYOUT_MAX_NDIM], from = in->ndim, ndim = from + count;
    uint64_t bits;
    if (ndim > LAYOUT_MAX_NDIM) {
        return layout_fail(fault, LAYOUT_FAULT_NDIM, ndim, 0);
    }
    if (!layout_axes(count, given, ndim, axes, &bits, fault)) {
        return false;
    }
    /* From the last axis down: `out` can be `in`. */
    int64_t extent = 1, stride = from > 0 ? in->strides[from - 1] : 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        if (bits >> axis & 1) {
            if (!continue_stride(extent, stride, in->itemsize, &stride)) {
                return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
            }
            extent = 1;
        }
        else {
            extent = in->shape[--from];
            stride = in->strides[from];
        }
        out->shape[axis] = extent;
        out->strides[axis] = stride;
    }
    out->ndim = ndim;
    out->itemsize = in->itemsize;
    out->offset = in->offset;
    return true;
}

bool
layout_broadcast(const strided_layout *in, int ndim, const int64_t *shape, strided_layout *out,
                 layout_fault *fault)
{
    int fresh = ndim - in->ndim;
    int64_t nbytes = in->itemsize; /* an empty axis counts as one item */
    bool overflows = false;
    if (fresh < 0 || ndim > LAYOUT_MAX_NDIM) {
        return layout_fail(fault, LAYOUT_FAULT_BROADCAST_NDIM, in->ndim, ndim);
    }
    /* From the last axis down: `out` can be `in`. */
    for (int axis = ndim - 1; axis >= 0; axis--) {
        bool is_fresh = axis < fresh;
        int64_t extent = is_fresh ? 1 : in->shape[axis - fresh];
        if (shape[axis] < 0) {
            return layout_fail(fault, LAYOUT_FAULT_EXTENT, shape[axis], axis);
        }
        if (extent != shape[axis] && extent != 1) {
            return layout_fail(fault, LAYOUT_FAULT_BROADCAST, extent, shape[axis]);
        }
        bool is_grown = is_fresh || extent != shape[axis];
        out->strides[axis] = is_grown ? 0 : in->strides[axis - fresh];
        out->shape[axis] = shape[axis];
        overflows |= !layout_multiply(nbytes, shape[axis] == 0 ? 1 : shape[axis], &nbytes);
    }
    out->ndim = ndim;
    out->itemsize = in->itemsize;
    out->offset = in->offset;
    return overflows ? layout_fail(fault, LAYOUT_FAULT_OVERFLOW, ndim, 0) : true;
}

/* ---- other shapes ---- */

/* The shape with its -1 worked out, and the same number of items. */
static bool
infer_shape(int64_t volume, int ndim, const int64_t *shape, int64_t *out, layout_fault *fault)
{
    int unknown = -1;
    int64_t known = 1;
    bool is_empty = false;
    for (int axis = 0; axis < ndim; axis++) {
        out[axis] = shape[axis];
        if (shape[axis] == -1) {
            if (unknown >= 0) {
                return layout_fail(fault, LAYOUT_FAULT_INFER, 0, 0);
            }
            unknown = axis;
        }
        else if (shape[axis] < 0) {
            return layout_fail(fault, LAYOUT_FAULT_EXTENT, shape[axis], axis);
        }
        else if (shape[axis] == 0) {
            is_empty = true;
        }
        else if (!layout_multiply(known, shape[axis], &known)) {
            return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
        }
    }
    known = is_empty ? 0 : known;
    if (unknown >= 0 && known > 0 && volume % known == 0) {
        out[unknown] = volume / known;
        known = volume;
    }
    if (known != volume || (unknown >= 0 && is_empty)) {
        return layout_fail(fault, LAYOUT_FAULT_VOLUME, volume, known);
    }
    return true;
}

/* One run of axes: `count` new extents over old axes first..last, which must follow each other
 * without a gap. */
static bool
fit_run(const strided_layout *in, int first, int last, int count, const int64_t *extents,
        int64_t *strides)
{
    for (int axis = first; axis < last; axis++) {
        int64_t whole;
        if (!layout_multiply(in->strides[axis + 1], in->shape[axis + 1], &whole) ||
            in->strides[axis] != whole) {
            return false;
        }
    }
    int64_t stride = in->strides[last];
    for (int i = count - 1; i > 0; i--) {
        strides[i] = stride;
        stride *= extents[i]; /* less than the run reaches, as another extent above 1 follows */
    }
    strides[0] = stride;
    return true;
}

/* Find strides for `extents` over the layout's items.  All extents of both are above 1, and
 * their products are equal.  Runs of axes whose products agree correspond. */
static bool
fit_moving(const strided_layout *in, int count, const int64_t *extents, int64_t *strides)
{
    int old = 0, new = 0;
    while (old < in->ndim) {
        int old_end = old + 1, new_end = new + 1;
        int64_t old_items = in->shape[old], new_items = extents[new];
        while (old_items != new_items) {
            if (new_items < old_items) { /* mutant survives (bound): they are not equal */
                new_items *= extents[new_end++];
            }
            else {
                old_items *= in->shape[old_end++];
            }
        }
        if (!fit_run(in, old, old_end - 1, new_end - new, extents + new, strides + new)) {
            return false;
        }
        old = old_end;
        new = new_end;
    }
    return new == count;
}

static inline bool
has_one(int ndim, const int64_t *shape)
{
    bool result = false; /* mutant survives (constant): only slower */
    for (int axis = 0; axis < ndim; axis++) {
        result |= shape[axis] == 1;
    }
    return result; /* mutant survives (constant returned): only slower */
}

typedef enum { FIT_OK, FIT_NOT_A_VIEW, FIT_OVERFLOW } fit_result;

/* Gives `shape` strides over the items of `in`, of which there is at least one.  An axis of
 * extent 1 gets the stride with which the axis after it would go on. */
static fit_result
fit_strides(const strided_layout *in, int ndim, const int64_t *shape, int64_t *strides)
{
    strided_layout moving;
    const strided_layout *from = in;
    int64_t extents[LAYOUT_MAX_NDIM], moves[LAYOUT_MAX_NDIM];
    int count = 0;
    if (has_one(in->ndim, in->shape)) {
        layout_squeezed(in, &moving);
        from = &moving;
    }
    /* mutant survives (bound): neither has an axis that moves */
    if (ndim > 0 && !has_one(ndim, shape)) {
        return fit_moving(from, ndim, shape, strides) ? FIT_OK : FIT_NOT_A_VIEW;
    }
    for (int axis = 0; axis < ndim; axis++) {
        if (shape[axis] != 1) {
            extents[count++] = shape[axis];
        }
    }
    /* mutant survives (bound): neither has an axis that moves */
    if (count > 0 && !fit_moving(from, count, extents, moves)) {
        return FIT_NOT_A_VIEW;
    }
    /* mutant survives (bound): an unused place holds 0 or 1, mostly */
    int64_t extent = 1, stride = in->ndim > 0 ? in->strides[in->ndim - 1] : 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        /* mutant survives (bound): GCC cannot see that they agree */
        if (shape[axis] != 1 && count > 0) {
            stride = moves[--count];
        }
        else if (!continue_stride(extent, stride, in->itemsize, &stride)) {
            return FIT_OVERFLOW;
        }
        extent = shape[axis];
        strides[axis] = stride;
    }
    return FIT_OK;
}

bool
layout_reshaped(const strided_layout *in, int ndim, const int64_t *shape, strided_layout *out,
                layout_fault *fault)
{
    int64_t inferred[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM];
    bool is_plain =
        in->ndim > 0 && in->strides[in->ndim - 1] == 1 && layout_is_contiguous_c(in);
    int64_t volume = layout_volume(in), offset = in->offset;
    if (ndim < 0 || ndim > LAYOUT_MAX_NDIM) {
        /* unreached: the fuzzers reach it */
        return layout_fail(fault, LAYOUT_FAULT_NDIM, ndim, 0);
    }
    if (!infer_shape(volume, ndim, shape, inferred, fault)) {
        return false;
    }
    if (volume == 0 ||
        is_plain) { /* no step is taken, and any strides will do; or dense ones are right */
        bool is_set = layout_set_dense(out, ndim, inferred, in->itemsize, 'C', fault);
        out->offset = offset;
        return is_set;
    }
    fit_result result = fit_strides(in, ndim, inferred, strides);
    if (result != FIT_OK) {
        return layout_fail(fault,
                           result == FIT_OVERFLOW ? LAYOUT_FAULT_OVERFLOW
                                                  : LAYOUT_FAULT_NOT_A_VIEW,
                           0, 0);
    }
    out->ndim = ndim;
    out->itemsize = in->itemsize;
    out->offset = offset;
    layout_copy_fresh(out->shape, inferred, ndim);
    layout_copy_fresh(out->strides, strides, ndim);
    return true;
}
