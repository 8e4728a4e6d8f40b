/* dtype_bits_laws.c: random layouts of packed and padded items through dtype_bits.h, for
 * sanitizers; run by test_dtype_bits.py.
 *
 * Oracle:  memory as an array of single bits, one byte each, that is read and written bit by
 *          bit.
 * Laws:    an item is where dlpack.h says; no bit beside it changes; no byte outside the span
 *          is touched.
 * Usage:   `dtype_bits_laws SEED COUNT`: exits 0, or says which law and stops.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arithmetic/dtype_bits.h"
#include "laws.h"

#define MOST_ITEMS 4096

/* ---- items in memory of just their size ---- */

typedef struct places {
    strided_layout layout;
    bits_items items;
    char *memory;              /* owned: the bytes of the span, and none beside them */
    int64_t nbytes, first_bit; /* of element 0, from the start of `memory` */
} places;

/* Strides that give every item bits of its own, in any order of the axes and
 * either direction. */
static void
set_layout(strided_layout *out, int ndim, const int64_t *shape)
{
    layout_fault fault;
    int64_t items = pick(1, 3), strides[4];
    bool is_done[4] = {false};
    for (int step = 0; step < ndim; step++) {
        int axis = (int)pick(0, ndim - 1);
        while (is_done[axis]) {
            axis = (axis + 1) % ndim;
        }
        is_done[axis] = true;
        strides[axis] = pick(0, 3) == 0 ? -items : items;
        items = items * shape[axis] + pick(0, 1);
    }
    CHECK(layout_set(out, ndim, shape, ndim == 0 ? NULL : strides, 1, 0, &fault));
    if (ndim == 0) {
        CHECK(layout_volume(out) == 1);
    }
}

static void
make_places(places *out, int ndim, const int64_t *shape, DLDataType dtype, bool is_padded)
{
    int64_t first, end, bits = dtype_step_bits(dtype, is_padded);
    set_layout(&out->layout, ndim, shape);
    out->first_bit = is_padded ? 0 : pick(0, 7);
    CHECK(bits_byte_span(&out->layout, bits, out->first_bit, &first, &end));
    out->nbytes = end - first;
    out->memory = malloc((size_t)out->nbytes);
    CHECK(out->memory != NULL);
    for (int64_t i = 0; i < out->nbytes; i++) {
        out->memory[i] = (char)pick(0, 255);
    }
    out->items =
        (bits_items){&out->layout, out->memory - first, out->first_bit, dtype, is_padded};
    out->first_bit -= 8 * first;
}

/* The first bit of every item, from the start of the memory, in C order. */
static void
list_bits(const places *in, int64_t *out)
{
    int64_t index[LAYOUT_MAX_NDIM] = {0}, count = layout_volume(&in->layout);
    int64_t bits = dtype_step_bits(in->items.dtype, in->items.is_padded);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int axis = 0; axis < in->layout.ndim; axis++) {
            at += index[axis] * in->layout.strides[axis];
        }
        out[i] = in->first_bit + at * bits;
        (void)next_index(&in->layout, index);
    }
}

static char *
explode(const places *in)
{
    char *bits = malloc((size_t)in->nbytes * 8);
    CHECK(bits != NULL);
    for (int64_t i = 0; i < in->nbytes * 8; i++) {
        bits[i] = (char)((uint8_t)in->memory[i / 8] >> i % 8 & 1);
    }
    return bits;
}

/* ---- the laws ---- */

static void
check_memory(const places *dst, const char *expected)
{
    char *found = explode(dst);
    CHECK(memcmp(found, expected, (size_t)dst->nbytes * 8) == 0);
    free(found);
}

static void
expect_item(char *expected, const places *dst, int64_t to, const char *source, int64_t from,
            DLDataType dtype)
{
    int64_t nbits = dtype_item_bits(dtype),
            width = dtype_step_bits(dtype, dst->items.is_padded);
    for (int64_t bit = 0; bit < width; bit++) {
        CHECK(to + bit >= 0 && to + bit < dst->nbytes * 8);
        expected[to + bit] = bit < nbits ? source[from + bit] : 0;
    }
}

static void
check_copy(places *dst, const places *src, DLDataType dtype)
{
    static int64_t to[MOST_ITEMS], from[MOST_ITEMS];
    char *expected = explode(dst), *source = explode(src);
    list_bits(dst, to);
    list_bits(src, from);
    for (int64_t i = 0; i < layout_volume(&dst->layout); i++) {
        expect_item(expected, dst, to[i], source, from[i], dtype);
    }
    bits_copy(&dst->items, &src->items);
    check_memory(dst, expected);
    check_memory(src, source);
    free(source);
    free(expected);
}

static void
check_fill(places *dst, DLDataType dtype)
{
    static int64_t to[MOST_ITEMS];
    int64_t nbytes = dtype_itemsize(dtype);
    char *item = malloc((size_t)nbytes), *expected = explode(dst);
    CHECK(item != NULL);
    for (int64_t i = 0; i < nbytes; i++) {
        item[i] = (char)pick(0, 255);
    }
    places one = {.memory = item, .nbytes = nbytes};
    char *source = explode(&one);
    list_bits(dst, to);
    for (int64_t i = 0; i < layout_volume(&dst->layout); i++) {
        expect_item(expected, dst, to[i], source, 0, dtype);
    }
    bits_fill(&dst->items, item);
    check_memory(dst, expected);
    free(source);
    free(expected);
    free(item);
}

/* Rows that are whole bytes: the same bits, and no others. */
static void
check_bytes(const places *in, DLDataType dtype)
{
    strided_layout bytes;
    int64_t nbits = dtype_item_bits(dtype), lowest, highest, first, end;
    if (in->items.is_padded || !bits_as_bytes(&in->layout, nbits, &bytes)) {
        return;
    }
    CHECK(layout_volume(&bytes) * 8 == layout_volume(&in->layout) * nbits);
    layout_offset_bounds(&bytes, &lowest, &highest);
    CHECK(bits_byte_span(&in->layout, nbits, 0, &first, &end));
    CHECK(lowest == first && highest + 1 == end);
}

static void
check_case(void)
{
    static const uint8_t widths[] = {1, 2, 4, 6};
    DLDataType dtype = {kDLUInt, widths[pick(0, 3)], pick(0, 1) ? 1 : (uint16_t)pick(2, 9)};
    int ndim = (int)pick(0, 4);
    int64_t shape[4];
    for (int axis = 0; axis < ndim; axis++) {
        shape[axis] = pick(1, 5);
    }
    bool can_pad = dtype.lanes == 1;
    places dst, src;
    make_places(&dst, ndim, shape, dtype, can_pad && pick(0, 2) == 0);
    make_places(&src, ndim, shape, dtype, can_pad && pick(0, 2) == 0);
    check_copy(&dst, &src, dtype);
    check_fill(&dst, dtype);
    check_bytes(&src, dtype);
    free(dst.memory);
    free(src.memory);
}

int
main(int argc, char **argv)
{
    for (int64_t left = begin_laws(argc, argv); left > 0; left--) {
        check_case();
    }
    return 0;
}
