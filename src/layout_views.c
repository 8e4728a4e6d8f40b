/* layout_views.c: layouts over the same items in another shape; see layout.h.
 *
 * Rule:  a view never reaches outside what its source reaches, so only new shapes and broadcasts
 *        check for overflow again.
 */
#include "layout.h"

#include <string.h>

static bool
fail(layout_fault *fault, layout_fault_code code, int64_t a, int64_t b)
{
    *fault = (layout_fault){code, a, b};
    return false;
}

/* Only as much of the value as its dimensions use: the struct is a kilobyte. */
static void
copy_layout(const strided_layout *in, strided_layout *out)
{
    if (in == out) {
        return;
    }
    size_t nbytes = (size_t)in->ndim * sizeof *in->shape;
    out->ndim = in->ndim;
    out->itemsize = in->itemsize;
    out->offset = in->offset;
    memcpy(out->shape, in->shape, nbytes);
    memcpy(out->strides, in->strides, nbytes);
}

static void
drop_axis(strided_layout *layout, int axis)
{
    size_t nbytes = (size_t)(layout->ndim - axis - 1) * sizeof *layout->shape;
    memmove(layout->shape + axis, layout->shape + axis + 1, nbytes);
    memmove(layout->strides + axis, layout->strides + axis + 1, nbytes);
    layout->ndim--;
}

static void
insert_axis(strided_layout *layout, int axis, int64_t extent, int64_t stride)
{
    size_t nbytes = (size_t)(layout->ndim - axis) * sizeof *layout->shape;
    memmove(layout->shape + axis + 1, layout->shape + axis, nbytes);
    memmove(layout->strides + axis + 1, layout->strides + axis, nbytes);
    layout->shape[axis] = extent;
    layout->strides[axis] = stride;
    layout->ndim++;
}

/* ---- parts ---- */

bool
layout_take_index(const strided_layout *in, int axis, int64_t index, strided_layout *out,
                  layout_fault *fault)
{
    int64_t extent = in->shape[axis];
    int64_t counted = index < 0 ? index + extent : index;
    if (counted < 0 || counted >= extent) {
        return fail(fault, LAYOUT_FAULT_INDEX, index, extent);
    }
    int64_t step = counted * in->strides[axis]; /* before out, which can be in */
    copy_layout(in, out);
    out->offset += step;
    drop_axis(out, axis);
    return true;
}

bool
layout_take_range(const strided_layout *in, int axis, int64_t start, int64_t length, int64_t step,
                  strided_layout *out, layout_fault *fault)
{
    if (step == 0) {
        return fail(fault, LAYOUT_FAULT_STEP, 0, 0);
    }
    int64_t stride = in->strides[axis];
    copy_layout(in, out);
    if (length > 0) {
        out->offset += start * stride;
    }
    /* With one item left or none no step is taken, and a long one need not fit. */
    if (length > 1) {
        out->strides[axis] = stride * step;
    }
    out->shape[axis] = length;
    return true;
}

bool
layout_permuted(const strided_layout *in, const int *axes, strided_layout *out,
                layout_fault *fault)
{
    int64_t shape[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM];
    bool is_used[LAYOUT_MAX_NDIM] = {false};
    for (int i = 0; i < in->ndim; i++) {
        int axis = axes[i];
        if (axis < 0 || axis >= in->ndim) {
            return fail(fault, LAYOUT_FAULT_AXIS, axis, in->ndim);
        }
        if (is_used[axis]) {
            return fail(fault, LAYOUT_FAULT_AXIS_TWICE, axis, 0);
        }
        is_used[axis] = true;
        shape[i] = in->shape[axis];
        strides[i] = in->strides[axis];
    }
    copy_layout(in, out);
    memcpy(out->shape, shape, (size_t)in->ndim * sizeof *shape);
    memcpy(out->strides, strides, (size_t)in->ndim * sizeof *strides);
    return true;
}

/* ---- axes of extent 1 ---- */

void
layout_squeezed(const strided_layout *in, strided_layout *out)
{
    copy_layout(in, out);
    int kept = 0;
    for (int axis = 0; axis < out->ndim; axis++) {
        if (out->shape[axis] != 1) {
            out->shape[kept] = out->shape[axis];
            out->strides[kept++] = out->strides[axis];
        }
    }
    out->ndim = kept;
}

bool
layout_expanded(const strided_layout *in, int axis, strided_layout *out, layout_fault *fault)
{
    if (axis < 0 || axis > in->ndim) {
        return fail(fault, LAYOUT_FAULT_AXIS, axis, in->ndim + 1);
    }
    if (in->ndim == LAYOUT_MAX_NDIM) {
        return fail(fault, LAYOUT_FAULT_NDIM, in->ndim + 1, 0);
    }
    copy_layout(in, out);
    /* The stride that keeps a contiguous layout contiguous to a reader of strides. */
    bool is_last = axis == in->ndim;
    int64_t stride = 1;
    if (!is_last && !layout_multiply(out->shape[axis], out->strides[axis], &stride)) {
        stride = 1;
    }
    insert_axis(out, axis, 1, stride);
    return true;
}

bool
layout_broadcast(const strided_layout *in, int ndim, const int64_t *shape, strided_layout *out,
                 layout_fault *fault)
{
    strided_layout wide;
    int64_t strides[LAYOUT_MAX_NDIM];
    int fresh = ndim - in->ndim;
    if (fresh < 0 || ndim > LAYOUT_MAX_NDIM) {
        return fail(fault, LAYOUT_FAULT_BROADCAST_NDIM, in->ndim, ndim);
    }
    for (int axis = 0; axis < ndim; axis++) {
        int64_t extent = axis < fresh ? 1 : in->shape[axis - fresh];
        if (extent != shape[axis] && extent != 1) {
            return fail(fault, LAYOUT_FAULT_BROADCAST, extent, shape[axis]);
        }
        bool is_grown = axis < fresh || extent != shape[axis];
        strides[axis] = is_grown ? 0 : in->strides[axis - fresh];
    }
    if (!layout_set(&wide, ndim, shape, strides, in->itemsize, in->offset, fault)) {
        return false;
    }
    copy_layout(&wide, out);
    return true;
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
                return fail(fault, LAYOUT_FAULT_INFER, 0, 0);
            }
            unknown = axis;
        }
        else if (shape[axis] < 0) {
            return fail(fault, LAYOUT_FAULT_EXTENT, shape[axis], axis);
        }
        else if (shape[axis] == 0) {
            is_empty = true;
        }
        else if (!layout_multiply(known, shape[axis], &known)) {
            return fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
        }
    }
    known = is_empty ? 0 : known;
    if (unknown >= 0 && known > 0 && volume % known == 0) {
        out[unknown] = volume / known;
        known = volume;
    }
    if (known != volume || (unknown >= 0 && is_empty)) {
        return fail(fault, LAYOUT_FAULT_VOLUME, volume, known);
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
        if (in->strides[axis] != in->strides[axis + 1] * in->shape[axis + 1]) {
            return false;
        }
    }
    int64_t stride = in->strides[last];
    for (int i = count - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= extents[i];
    }
    return true;
}

/* Strides for extents above 1 over a layout whose extents are above 1 too and whose number of items
 * is the same.  Runs of axes whose products agree correspond. */
static bool
fit_moving(const strided_layout *in, int count, const int64_t *extents, int64_t *strides)
{
    int old = 0, new = 0;
    while (old < in->ndim) {
        int old_end = old + 1, new_end = new + 1;
        int64_t old_items = in->shape[old], new_items = extents[new];
        while (old_items != new_items) {
            if (new_items < old_items) {
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

/* Gives `shape` strides over the items of `in`, of which there is at least one. */
static bool
fit_strides(const strided_layout *in, int ndim, const int64_t *shape, int64_t *strides)
{
    strided_layout moving;
    int64_t extents[LAYOUT_MAX_NDIM] = {0}, moves[LAYOUT_MAX_NDIM];
    int count = 0;
    layout_squeezed(in, &moving);
    for (int axis = 0; axis < ndim; axis++) {
        if (shape[axis] != 1) {
            extents[count++] = shape[axis];
        }
    }
    if (!fit_moving(&moving, count, extents, moves)) {
        return false;
    }
    /* An axis of extent 1 gets the stride that the next one would continue with. */
    int64_t stride = 1;
    for (int axis = ndim - 1; axis >= 0; axis--) {
        if (shape[axis] != 1) {
            stride = moves[--count];
            strides[axis] = stride;
            stride *= shape[axis];
        }
        else {
            strides[axis] = stride;
        }
    }
    return true;
}

bool
layout_reshaped(const strided_layout *in, int ndim, const int64_t *shape, strided_layout *out,
                layout_fault *fault)
{
    int64_t inferred[LAYOUT_MAX_NDIM];
    int64_t volume = layout_volume(in);
    if (ndim < 0 || ndim > LAYOUT_MAX_NDIM) {
        return fail(fault, LAYOUT_FAULT_NDIM, ndim, 0);
    }
    if (!infer_shape(volume, ndim, shape, inferred, fault)) {
        return false;
    }
    strided_layout wide;
    int64_t strides[LAYOUT_MAX_NDIM];
    const int64_t *used = NULL; /* an empty layout takes no step: any strides will do */
    if (volume > 0) {
        if (!fit_strides(in, ndim, inferred, strides)) {
            return fail(fault, LAYOUT_FAULT_NOT_A_VIEW, 0, 0);
        }
        used = strides;
    }
    if (!layout_set(&wide, ndim, inferred, used, in->itemsize, in->offset, fault)) {
        return false;
    }
    copy_layout(&wide, out);
    return true;
}

bool
layout_flattened(const strided_layout *in, int first, int last, strided_layout *out,
                 layout_fault *fault)
{
    strided_layout part = {.itemsize = in->itemsize};
    int64_t volume, stride;
    part.ndim = last - first + 1;
    memcpy(part.shape, in->shape + first, (size_t)part.ndim * sizeof *part.shape);
    memcpy(part.strides, in->strides + first, (size_t)part.ndim * sizeof *part.strides);
    volume = layout_volume(&part);
    if (volume == 0) {
        stride = 1;
    }
    else if (!fit_strides(&part, 1, &volume, &stride)) {
        return fail(fault, LAYOUT_FAULT_NOT_A_VIEW, 0, 0);
    }
    copy_layout(in, out);
    for (int axis = first; axis < last; axis++) {
        drop_axis(out, first);
    }
    out->shape[first] = volume;
    out->strides[first] = stride;
    return true;
}

/* ---- other items over the same bytes ---- */

/* Every stride but that of `axis`, and the offset, counted in larger items.  False: not whole. */
static bool
recount_up(strided_layout *layout, int axis, int64_t factor)
{
    if (layout->offset % factor != 0) {
        return false;
    }
    for (int i = 0; i < layout->ndim; i++) {
        if (i == axis || layout->shape[i] <= 1) {
            continue;
        }
        if (layout->strides[i] % factor != 0) {
            return false;
        }
        layout->strides[i] /= factor;
    }
    layout->offset /= factor;
    return true;
}

static bool
pack(strided_layout *layout, int axis, int64_t factor, bool keep_axis)
{
    if (layout->shape[axis] % factor != 0 || !recount_up(layout, axis, factor)) {
        return false;
    }
    layout->shape[axis] /= factor;
    layout->strides[axis] = 1;
    if (!keep_axis && layout->shape[axis] == 1) {
        drop_axis(layout, axis);
    }
    return true;
}

static bool
unpack(strided_layout *layout, int axis, int64_t factor)
{
    for (int i = 0; i < layout->ndim; i++) {
        if (i != axis && !layout_multiply(layout->strides[i], factor, &layout->strides[i])) {
            return false;
        }
    }
    layout->strides[axis] = 1;
    return layout_multiply(layout->offset, factor, &layout->offset) &&
           layout_multiply(layout->shape[axis], factor, &layout->shape[axis]);
}

bool
layout_repacked(const strided_layout *in, int64_t itemsize, int axis, bool keep_axis,
                strided_layout *out, layout_fault *fault)
{
    int64_t from = in->itemsize;
    copy_layout(in, out);
    out->itemsize = itemsize;
    bool is_contiguous = axis < in->ndim && (in->shape[axis] <= 1 || in->strides[axis] == 1);
    bool fits = from == itemsize;
    if (!fits && itemsize > from && itemsize % from == 0) {
        fits = is_contiguous && pack(out, axis, itemsize / from, keep_axis);
    }
    else if (!fits && itemsize > 0 && from % itemsize == 0) {
        fits = is_contiguous && unpack(out, axis, from / itemsize);
    }
    return fits ? true : fail(fault, LAYOUT_FAULT_REPACK, from, itemsize);
}
