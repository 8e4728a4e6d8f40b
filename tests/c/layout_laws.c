/* layout_laws.c: random layouts through every function of layout.h, for sanitizers; run by
 * test_layout.py.
 *
 * Owns:    nothing: the cases follow from the seed.
 * Laws:    a view lists offsets that its source lists, in the order that the operation says; a
 *          layout that was accepted can be asked anything.
 * Usage:   `layout_laws SEED COUNT`: exits 0, or says which law and stops.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arithmetic/layout.h"
#include "laws.h"

/* A range of one axis, as an index with a slice makes it. */
static bool
take_range(const strided_layout *in, int axis, int64_t start, int64_t length, int64_t step,
           strided_layout *out, layout_fault *fault)
{
    int64_t offset = in->offset, stride;
    if (!layout_cut_axis(in, axis, start, length, step, &offset, &stride, fault)) {
        return false;
    }
    if (in != out) {
        layout_copy(in, out);
    }
    out->offset = offset;
    out->strides[axis] = stride;
    out->shape[axis] = length;
    return true;
}

#define MOST_ITEMS 2000

static int64_t
pick_far(void)
{
    static const int64_t far[] = {INT64_MIN,    INT64_MIN + 1,
                                  INT64_MAX,    INT64_MAX - 1,
                                  1LL << 62,    -(1LL << 62),
                                  1LL << 40,    -(1LL << 31),
                                  1LL << 61,    3,
                                  -(1LL << 61), 0};
    return far[next_random() % (sizeof far / sizeof far[0])];
}

/* ---- what a layout lists ---- */

typedef struct listing {
    int64_t count, offsets[MOST_ITEMS];
} listing;

/* Every offset in C order. */
static void
list_offsets(const strided_layout *in, listing *out)
{
    int64_t index[LAYOUT_MAX_NDIM] = {0};
    out->count = layout_volume(in);
    CHECK(out->count <= MOST_ITEMS);
    for (int64_t i = 0; i < out->count; i++) {
        int64_t offset = in->offset;
        for (int axis = 0; axis < in->ndim; axis++) {
            offset += index[axis] * in->strides[axis];
        }
        out->offsets[i] = offset;
        (void)next_index(in, index);
    }
}

static void
check_same_list(const strided_layout *a, const strided_layout *b)
{
    static listing first, second;
    list_offsets(a, &first);
    list_offsets(b, &second);
    CHECK(first.count == second.count);
    CHECK(memcmp(first.offsets, second.offsets, (size_t)first.count * sizeof(int64_t)) == 0);
}

static void
check_within(const strided_layout *view, const strided_layout *source)
{
    int64_t min, max, source_min, source_max;
    if (layout_is_empty(view)) {
        return;
    }
    layout_offset_bounds(view, &min, &max);
    layout_offset_bounds(source, &source_min, &source_max);
    CHECK(source_min <= min && max <= source_max);
}

/* ---- questions ---- */

static void
check_bounds(const strided_layout *in, const listing *listed)
{
    int64_t min, max, seen_min = in->offset, seen_max = in->offset;
    layout_offset_bounds(in, &min, &max);
    for (int64_t i = 0; i < listed->count; i++) {
        seen_min = listed->offsets[i] < seen_min ? listed->offsets[i] : seen_min;
        seen_max = listed->offsets[i] > seen_max ? listed->offsets[i] : seen_max;
    }
    CHECK(min == seen_min && max == seen_max);
}

static void
check_unique(const strided_layout *in, const listing *listed)
{
    if (!layout_is_unique(in) || listed->count > 200) {
        return;
    }
    for (int64_t i = 0; i < listed->count; i++) {
        for (int64_t j = 0; j < i; j++) {
            CHECK(listed->offsets[i] != listed->offsets[j]);
        }
    }
}

static void
ask_everything(const strided_layout *in)
{
    int64_t axes[LAYOUT_MAX_NDIM], min, max;
    CHECK(layout_volume(in) >= 0);
    layout_offset_bounds(in, &min, &max);
    CHECK(min <= max);
    bool is_c = layout_is_contiguous_c(in), is_f = layout_is_contiguous_f(in);
    bool is_any = layout_is_contiguous_any(in), is_unique = layout_is_unique(in);
    CHECK(is_any || !(is_c || is_f));
    CHECK(is_unique || !is_any);
    layout_stride_order(in, axes);
    CHECK(layout_merge_mask(in) >> 1 >> (in->ndim > 0 ? in->ndim - 1 : 0) == 0);
    CHECK(layout_same_shape(in, in));
    for (int axis = 0; axis < in->ndim; axis++) {
        int64_t most = in->itemsize < 1000 ? in->itemsize + pick(0, 40) : INT64_MAX;
        int64_t size = layout_max_itemsize(in, most, pick_far(), axis);
        CHECK(size % in->itemsize == 0 || in->itemsize % size == 0);
    }
}

/* ---- views ---- */

static void
try_parts(const strided_layout *in)
{
    strided_layout out = *in;
    layout_fault fault;
    for (int axis = in->ndim - 1; axis >= 0; axis--) {
        int64_t extent = out.shape[axis];
        strided_layout before = out;
        bool is_taken;
        if (pick(0, 1)) {
            is_taken =
                layout_index_axis(&out, axis, pick(-extent - 1, extent), &out.offset, &fault);
            layout_drop_axis(&out, axis);
        }
        else {
            int64_t start = extent > 0 ? pick(0, extent - 1) : 0;
            int64_t step = pick(0, 4) ? pick(1, 3) : pick_far();
            int64_t length = extent == 0         ? 0
                             : step == INT64_MIN ? 1
                             : step < 0          ? start / -step + 1
                             : step > 0          ? (extent - 1 - start) / step + 1
                                                 : 0;
            is_taken = take_range(&out, axis, start, length, step, &out, &fault);
            CHECK(is_taken || step == 0 || layout_is_empty(in));
        }
        if (!is_taken) {
            fault_text said = layout_fault_text(&fault);
            CHECK(strlen(said.text) > 0 && strchr(said.text, '%') == NULL);
            out = before;
        }
        check_within(&out, in);
        ask_everything(&out);
    }
}

static void
try_permuted(const strided_layout *in)
{
    int64_t axes[LAYOUT_MAX_NDIM], back[LAYOUT_MAX_NDIM];
    strided_layout out, again;
    layout_fault fault;
    for (int i = 0; i < in->ndim; i++) {
        int place = (int)pick(0, i);
        axes[i] = axes[place];
        axes[place] = i;
    }
    for (int i = 0; i < in->ndim; i++) {
        back[axes[i]] = i;
        axes[i] -= pick(0, 1) * in->ndim;
    }
    CHECK(layout_permuted(in, in->ndim, axes, &out, &fault) &&
          layout_permuted(&out, in->ndim, back, &again, &fault));
    check_same_list(in, &again);
    ask_everything(&out);
    if (in->ndim > 1) {
        axes[0] = axes[1];
        CHECK(!layout_permuted(in, in->ndim, axes, &out, &fault) &&
              fault.code == LAYOUT_FAULT_AXIS_TWICE);
        CHECK(!layout_permuted(in, 1, axes, &out, &fault) && fault.code == LAYOUT_FAULT_AXES);
    }
}

static void
try_units(const strided_layout *in)
{
    strided_layout out;
    layout_fault fault;
    layout_squeezed(in, &out);
    check_same_list(in, &out);
    int64_t first = 0, axis = pick(-in->ndim - 1, in->ndim), beyond = in->ndim + 1, zero = 0;
    while (first < in->ndim && in->shape[first] != 1) {
        first++;
    }
    CHECK(layout_squeezed_axes(in, 0, NULL, &out, &fault) && out.ndim == in->ndim);
    if (first < in->ndim) {
        CHECK(layout_squeezed_axes(in, 1, &first, &out, &fault) && out.ndim == in->ndim - 1);
        check_same_list(in, &out);
    }
    if (first > 0) {
        CHECK(!layout_squeezed_axes(in, 1, &zero, &out, &fault) &&
              fault.code == LAYOUT_FAULT_SQUEEZE && fault.b == in->shape[0]);
    }
    if (layout_expanded(in, 1, &axis, &out, &fault)) {
        check_same_list(in, &out);
    }
    bool is_full = in->ndim == LAYOUT_MAX_NDIM;
    CHECK(!layout_expanded(in, 1, &beyond, &out, &fault) &&
          fault.code == (is_full ? LAYOUT_FAULT_NDIM : LAYOUT_FAULT_AXIS));
    int64_t axes[] = {pick(-5, 4), pick(-5, 4), pick(-5, 4)};
    if (layout_unsqueezed(in, (int)pick(0, 3), axes, &out, &fault)) {
        check_same_list(in, &out);
        ask_everything(&out);
    }
}

/* Splits and joins extents at random; -1 in place of one now and then. */
static void
try_reshaped(const strided_layout *in)
{
    int64_t shape[2 * LAYOUT_MAX_NDIM];
    int ndim = 0;
    strided_layout out;
    layout_fault fault;
    for (int axis = 0; axis < in->ndim && ndim < LAYOUT_MAX_NDIM - 2; axis++) {
        int64_t part = in->shape[axis] > 1 ? pick(1, in->shape[axis]) : 1;
        part = in->shape[axis] % part == 0 ? part : 1;
        shape[ndim++] = part;
        shape[ndim++] = in->shape[axis] / part;
        if (pick(0, 2) == 0) {
            shape[ndim - 2] *= shape[ndim - 1];
            ndim--;
        }
    }
    if (ndim > 0 && pick(0, 3) == 0) {
        shape[pick(0, ndim - 1)] = pick(0, 3) ? -1 : pick_far();
    }
    if (layout_reshaped(in, ndim, shape, &out, &fault)) {
        check_same_list(in, &out);
        ask_everything(&out);
    }
    layout_merged(in, next_random(), &out);
    check_same_list(in, &out);
}

static void
try_broadcast(const strided_layout *in)
{
    int64_t shape[LAYOUT_MAX_NDIM + 2];
    int fresh = (int)pick(0, 2);
    strided_layout out;
    layout_fault fault;
    for (int i = 0; i < fresh; i++) {
        shape[i] = pick(0, 6) ? pick(0, 2) : pick_far();
    }
    for (int axis = 0; axis < in->ndim; axis++) {
        shape[fresh + axis] = in->shape[axis] == 1 && pick(0, 1) ? pick(0, 3) : in->shape[axis];
    }
    if (layout_broadcast(in, in->ndim + fresh, shape, &out, &fault)) {
        ask_everything(&out);
        check_within(&out, in);
    }
}

static void
try_repacked(const strided_layout *in)
{
    static listing before, after;
    if (in->ndim == 0) {
        return;
    }
    int axis = (int)pick(0, in->ndim - 1);
    int64_t itemsize = pick(0, 5) ? in->itemsize * pick(1, 4) : pick(0, in->itemsize);
    strided_layout out;
    layout_fault fault;
    int64_t address = pick(0, 1) ? 0 : pick_far();
    if (!layout_repacked(in, itemsize, address, axis, pick(0, 1), &out, &fault)) {
        return;
    }
    if (layout_volume(&out) <= MOST_ITEMS && layout_volume(in) > 0) {
        list_offsets(in, &before);
        list_offsets(&out, &after);
        CHECK(before.offsets[0] * in->itemsize == after.offsets[0] * itemsize);
        CHECK(before.count * in->itemsize == after.count * itemsize);
    }
    ask_everything(&out);
}

/* ---- cases ---- */

static bool
make_random(strided_layout *out, bool is_far)
{
    int64_t shape[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM], volume = 1;
    layout_fault fault;
    int ndim = pick(0, 30) ? (int)pick(0, 7) : (int)pick(60, 64);
    for (int axis = 0; axis < ndim; axis++) {
        int64_t extent = pick(0, 12) ? pick(1, ndim > 8 ? 1 : 4) : pick(0, 6);
        extent = volume * extent > MOST_ITEMS / 6 ? 1 : extent;
        volume *= extent > 0 ? extent : 1;
        shape[axis] = is_far && pick(0, 9) == 0 ? pick_far() : extent;
        strides[axis] = is_far && pick(0, 1) ? pick_far() : pick(-12, 12);
    }
    int64_t itemsize = is_far && pick(0, 3) == 0 ? pick_far() : pick(1, 16);
    if (pick(0, 3) == 0) {
        return layout_set_dense(out, ndim, shape, itemsize, pick(0, 1) ? 'C' : 'F', &fault);
    }
    return layout_set(out, ndim, shape, strides, itemsize, is_far ? pick_far() : pick(-50, 50),
                      &fault);
}

static void
try_far(const strided_layout *in)
{
    strided_layout out;
    layout_fault fault;
    ask_everything(in);
    for (int axis = 0; axis < in->ndim; axis++) {
        int64_t extent = in->shape[axis], offset = in->offset;
        (void)layout_index_axis(in, axis, pick(-3, 3), &offset, &fault);
        if (extent > 0) {
            (void)take_range(in, axis, extent - 1, 1, pick_far(), &out, &fault);
            (void)take_range(in, axis, extent - 1, extent, -1, &out, &fault);
        }
        (void)layout_expanded(in, 1, &(int64_t){axis}, &out, &fault);
        (void)layout_repacked(in, pick(1, 8), pick_far(), axis, true, &out, &fault);
        (void)layout_repacked(in, pick_far(), pick_far(), axis, true, &out, &fault);
    }
    int64_t shape[] = {pick_far(), pick_far(), -1, 2};
    (void)layout_reshaped(in, (int)pick(0, 4), shape, &out, &fault);
    (void)layout_unsqueezed(in, 2, (int64_t[]){pick(0, 2), pick(-2, 2)}, &out, &fault);
    layout_merged(in, next_random(), &out);
    layout_squeezed(in, &out);
}

int
main(int argc, char **argv)
{
    for (int64_t left = begin_laws(argc, argv); left > 0; left--) {
        static listing listed;
        strided_layout layout;
        bool is_far = pick(0, 2) == 0;
        if (!make_random(&layout, is_far)) {
            continue;
        }
        if (is_far) {
            try_far(&layout);
            continue;
        }
        list_offsets(&layout, &listed);
        check_bounds(&layout, &listed);
        check_unique(&layout, &listed);
        ask_everything(&layout);
        try_parts(&layout);
        try_permuted(&layout);
        try_units(&layout);
        try_reshaped(&layout);
        try_broadcast(&layout);
        try_repacked(&layout);
    }
    return 0;
}
