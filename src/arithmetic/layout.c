/* layout.c: see layout.h.  Making layouts, and questions about one; views are in
 * layout_views.c. */
#include "arithmetic/layout.h"

#include <stdio.h>

#define LAYOUT_AS_TEXT(name, text) [name] = text,
static const char *const fault_texts[] = {LAYOUT_FAULT_LIST(LAYOUT_AS_TEXT)};
#undef LAYOUT_AS_TEXT

fault_text
layout_text_of(const char *format, int64_t a, int64_t b, int64_t c)
{
    fault_text out;
    /* Every format is of a list of faults, and takes these numbers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(out.text, sizeof out, format, (long long)a, (long long)b, (long long)c);
#pragma GCC diagnostic pop
    return out;
}

fault_text
layout_fault_text(const layout_fault *fault)
{
    return layout_text_of(fault_texts[fault->code], fault->a, fault->b, 0);
}

/* ---- making a layout ---- */

static bool
set_shape(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
          layout_fault *fault)
{
    if (ndim < 0 || ndim > LAYOUT_MAX_NDIM) {
        return layout_fail(fault, LAYOUT_FAULT_NDIM, ndim, 0);
    }
    if (itemsize < 1) {
        return layout_fail(fault, LAYOUT_FAULT_ITEMSIZE, itemsize, 0);
    }
    for (int axis = 0; axis < ndim; axis++) {
        if (shape[axis] < 0) {
            return layout_fail(fault, LAYOUT_FAULT_EXTENT, shape[axis], axis);
        }
        out->shape[axis] = shape[axis];
    }
    out->ndim = ndim;
    out->itemsize = itemsize;
    out->offset = 0;
    return true;
}

bool
layout_is_empty(const strided_layout *in)
{
    for (int axis = 0; axis < in->ndim; axis++) {
        if (in->shape[axis] == 0) {
            return true;
        }
    }
    return false;
}

/* Dense strides grow from one end.  An empty axis counts as one item, as in NumPy: the strides
 * of the other axes then do not become 0. */
static bool
set_dense_strides(strided_layout *out, char order, layout_fault *fault)
{
    int64_t items = 1, nbytes;
    bool is_c = order != 'F';
    for (int step = 0; step < out->ndim; step++) {
        int axis = is_c ? out->ndim - 1 - step : step;
        int64_t extent = out->shape[axis] == 0 ? 1 : out->shape[axis];
        out->strides[axis] = items;
        if (!layout_multiply(items, extent, &items) ||
            !layout_multiply(items, out->itemsize, &nbytes)) {
            return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
        }
    }
    return true;
}

bool
layout_set_dense(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
                 char order, layout_fault *fault)
{
    return set_shape(out, ndim, shape, itemsize, fault) && set_dense_strides(out, order, fault);
}

/* The offsets of the lowest and the highest item of a layout that has items.  False on
 * overflow. */
static inline bool
find_bounds(const strided_layout *in, int64_t *min, int64_t *max)
{
    int64_t low = in->offset, high = in->offset;
    bool fits = true;
    for (int axis = 0; axis < in->ndim; axis++) {
        int64_t reach;
        fits &= layout_multiply(in->shape[axis] - 1, in->strides[axis], &reach);
        fits &= layout_add(low, reach < 0 ? reach : 0, &low);
        fits &= layout_add(high, reach < 0 ? 0 : reach, &high);
    }
    *min = low;
    *max = high;
    return fits;
}

/* Every offset, and the byte past the last item, fits in an int64. */
static bool
check_reach(const strided_layout *in, layout_fault *fault)
{
    int64_t min = in->offset, max = in->offset, nbytes = in->itemsize, past, ignored;
    uint64_t most = layout_magnitude(in->offset);
    bool is_empty = false, fits = true;
    for (int axis = 0; axis < in->ndim; axis++) {
        int64_t extent = in->shape[axis];
        is_empty |= extent == 0;
        fits &= layout_multiply(nbytes, extent == 0 ? 1 : extent, &nbytes);
        most |= layout_magnitude(extent) | layout_magnitude(in->strides[axis]);
    }
    /* Small numbers, as most are, need no more to see that they fit: 64 axes of 2^23 steps of
     * 2^23 items of 2^7 bytes do. */
    /* mutant survives (bound): only slower */
    /* mutant survives (condition never): only slower */
    if (fits && most < 1 << 23 && in->itemsize <= 1 << 7) {
        return true;
    }
    fits = fits && (is_empty || find_bounds(in, &min, &max)) && layout_add(max, 1, &past) &&
           layout_multiply(past, in->itemsize, &ignored) &&
           layout_multiply(min, in->itemsize, &ignored);
    return fits || layout_fail(fault, LAYOUT_FAULT_OVERFLOW, 0, 0);
}

bool
layout_set(strided_layout *out, int ndim, const int64_t *shape, const int64_t *strides,
           int64_t itemsize, int64_t offset, layout_fault *fault)
{
    if (!set_shape(out, ndim, shape, itemsize, fault)) {
        return false;
    }
    if (strides == NULL) {
        if (!set_dense_strides(out, 'C', fault)) {
            return false;
        }
    }
    else if (ndim > 0 && strides != out->strides) {
        memcpy(out->strides, strides, (size_t)ndim * sizeof *strides);
    }
    out->offset = offset;
    return check_reach(out, fault);
}

/* ---- questions ---- */

int64_t
layout_volume(const strided_layout *in)
{
    int64_t items = 1;
    for (int axis = 0; axis < in->ndim; axis++) {
        /* mutant survives (condition never): the product is 0 either way */
        if (in->shape[axis] == 0) {
            return 0;
        }
        items *= in->shape[axis]; /* checked when the layout was made */
    }
    return items;
}

void
layout_offset_bounds(const strided_layout *in, int64_t *min, int64_t *max)
{
    *min = *max = in->offset;
    if (!layout_is_empty(in)) {
        (void)find_bounds(in, min, max);
    }
}

static bool
is_contiguous(const strided_layout *in, bool is_c)
{
    int64_t expected = 1;
    bool follows = true;
    for (int step = 0; step < in->ndim; step++) {
        int axis = is_c ? in->ndim - 1 - step : step;
        int64_t extent = in->shape[axis];
        if (extent == 0) {
            return true;
        }
        follows &= extent == 1 || in->strides[axis] == expected;
        expected *= extent; /* the volume at most */
    }
    return follows;
}

bool
layout_is_contiguous_c(const strided_layout *in)
{
    return is_contiguous(in, true);
}

bool
layout_is_contiguous_f(const strided_layout *in)
{
    return is_contiguous(in, false);
}

bool
layout_same_shape(const strided_layout *a, const strided_layout *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* ---- the order of the strides, and what follows from it ---- */

/* Does axis `a` come before a later axis `b`? */
static inline bool
is_ordered(const strided_layout *in, int64_t a, int64_t b)
{
    uint64_t stride_a = layout_absolute(in->strides[a]);
    uint64_t stride_b = layout_absolute(in->strides[b]);
    if (stride_a != stride_b) {
        /* mutant survives (bound): they are not equal */
        return stride_a > stride_b;
    }
    return in->shape[a] >= in->shape[b];
}

void
layout_stride_order(const strided_layout *in, int64_t *axes)
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
    int64_t axes[LAYOUT_MAX_NDIM];
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
    int64_t axes[LAYOUT_MAX_NDIM];
    /* how far all shorter strides go together: below 2^64, as both bounds fit int64 */
    uint64_t reach = 0;
    if (layout_is_empty(in)) {
        return true;
    }
    layout_stride_order(in, axes);
    for (int place = in->ndim - 1; place >= 0; place--) {
        int64_t extent = in->shape[axes[place]];
        uint64_t stride = layout_absolute(in->strides[axes[place]]);
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
layout_axis(int64_t given, int ndim, int *axis, layout_fault *fault)
{
    int64_t counted = given < 0 ? given + ndim : given;
    *axis = (int)counted;
    return (counted >= 0 && counted < ndim) ||
           layout_fail(fault, LAYOUT_FAULT_AXIS, given, ndim);
}

bool
layout_axes(int count, const int64_t *given, int ndim, int *axes, uint64_t *bits,
            layout_fault *fault)
{
    *bits = 0;
    for (int i = 0; i < count; i++) {
        if (!layout_axis(given[i], ndim, &axes[i], fault)) {
            return false;
        }
        if (*bits >> axes[i] & 1) {
            return layout_fail(fault, LAYOUT_FAULT_AXIS_TWICE, axes[i], 0);
        }
        *bits |= UINT64_C(1) << axes[i];
    }
    return true;
}

bool
layout_set_ordered(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
                   int count, const int64_t *order, layout_fault *fault)
{
    int axes[LAYOUT_MAX_NDIM];
    uint64_t bits;
    int64_t items = 1;
    /* Check the shape and its product in C order; every order has the same product. */
    if (!layout_set_dense(out, ndim, shape, itemsize, 'C', fault)) {
        return false;
    }
    if (count != ndim) {
        return layout_fail(fault, LAYOUT_FAULT_AXES, count, ndim);
    }
    if (!layout_axes(count, order, ndim, axes, &bits, fault)) {
        return false;
    }
    for (int place = ndim - 1; place >= 0; place--) {
        out->strides[axes[place]] = items;
        items *= shape[axes[place]];
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
layout_merge_axes(strided_layout *layout, uint64_t mask)
{
    int last = 0; /* the axis that grows */
    if (layout->ndim == 0) {
        layout->ndim = 1;
        layout->shape[0] = layout->strides[0] = 1;
        return;
    }
    for (int axis = 1; axis < layout->ndim; axis++) {
        bool is_joined = (mask >> axis & 1) && goes_on(layout, layout->strides[last], axis);
        int64_t extent = layout->shape[axis];
        last += !is_joined;
        /* the volume at most */
        layout->shape[last] = is_joined ? layout->shape[last] * extent : extent;
        layout->strides[last] = layout->strides[axis];
    }
    layout->ndim = last + 1;
}
