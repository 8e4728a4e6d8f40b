/* dtype_bits.c: see dtype_bits.h. */
#include "arithmetic/dtype_bits.h"

/* ---- single bits ---- */

uint8_t
bits_read(const char *base, int64_t at, int count)
{
    const uint8_t *bytes = (const uint8_t *)base + (at >> 3); /* rounds down, also below 0 */
    int shift = (int)(at & 7);
    unsigned value = bytes[0] >> shift;
    if (shift + count > 8) { /* only then is there a second byte */
        value |= (unsigned)bytes[1] << (8 - shift);
    }
    return (uint8_t)(value & ((1u << count) - 1));
}

void
bits_write(char *base, int64_t at, int count, uint8_t value)
{
    uint8_t *bytes = (uint8_t *)base + (at >> 3);
    int shift = (int)(at & 7);
    unsigned mask = ((1u << count) - 1) << shift, placed = (unsigned)value << shift & mask;
    bytes[0] = (uint8_t)((bytes[0] & ~mask) | placed);
    if (shift + count > 8) {
        bytes[1] = (uint8_t)((bytes[1] & ~(mask >> 8)) | placed >> 8);
    }
}

/* ---- where the items lie ---- */

bool
bits_byte_span(const strided_layout *layout, int64_t item_bits, int64_t first_bit,
               int64_t *first, int64_t *end)
{
    int64_t lowest, highest, past;
    layout_offset_bounds(layout, &lowest, &highest);
    /* counted in bytes: this reaches eight times as far */
    if (item_bits % 8 == 0 && first_bit == 0) {
        return layout_multiply(lowest, item_bits / 8, first) && layout_add(highest, 1, &past) &&
               layout_multiply(past, item_bits / 8, end);
    }
    if (!layout_multiply(lowest, item_bits, &lowest) ||
        !layout_add(lowest, first_bit, &lowest) ||
        !layout_multiply(highest, item_bits, &highest) ||
        !layout_add(highest, first_bit + item_bits + 7, &past)) {
        return false;
    }
    *first = lowest >> 3;
    *end = past >> 3;
    return true;
}

bool
bits_as_bytes(const strided_layout *layout, int64_t item_bits, strided_layout *out)
{
    int last = layout->ndim - 1;
    int64_t offset_bits, row_bits;
    if (last < 0 || layout->strides[last] != 1 ||
        !layout_multiply(layout->shape[last], item_bits, &row_bits) || row_bits % 8 != 0 ||
        !layout_multiply(layout->offset, item_bits, &offset_bits) || offset_bits % 8 != 0) {
        return false;
    }
    layout_copy(layout, out);
    out->itemsize = 1;
    out->offset = offset_bits / 8;
    out->shape[last] = row_bits / 8;
    for (int axis = 0; axis < last; axis++) {
        int64_t step_bits;
        if (!layout_multiply(layout->strides[axis], item_bits, &step_bits) ||
            step_bits % 8 != 0) {
            return false;
        }
        out->strides[axis] = step_bits / 8;
    }
    return true;
}

/* ---- walking ---- */

/* One side of a walk: where it is, and how far each axis steps, all in bits. */
typedef struct bits_side {
    char *base;
    int64_t item_bits;
    const int64_t *strides;
    int write_bits; /* per lane; a padded lane is written with the bits above it */
} bits_side;

static bits_side
side_of(const bits_items *items)
{
    return (bits_side){
        .base = items->base,
        .item_bits = dtype_step_bits(items->dtype, items->is_padded),
        .strides = items->layout->strides,
        .write_bits = items->is_padded ? 8 : items->dtype.bits,
    };
}

static int64_t
origin_of(const bits_items *items)
{
    return items->first_bit +
           items->layout->offset * dtype_step_bits(items->dtype, items->is_padded);
}

static void
copy_item(const bits_side *dst, int64_t to, const bits_side *src, int64_t from,
          DLDataType dtype)
{
    for (int lane = 0; lane < dtype.lanes; lane++) {
        uint8_t value = bits_read(src->base, from + (int64_t)lane * dtype.bits, dtype.bits);
        bits_write(dst->base, to + (int64_t)lane * dtype.bits, dst->write_bits, value);
    }
}

typedef struct bits_walk {
    const strided_layout *shape;
    DLDataType dtype;
    bits_side dst, src;
} bits_walk;

/* As deep as there are axes: 64. */
static void
walk_axis(const bits_walk *walk, int axis, int64_t to, int64_t from)
{
    if (axis == walk->shape->ndim) {
        copy_item(&walk->dst, to, &walk->src, from, walk->dtype);
        return;
    }
    int64_t extent = walk->shape->shape[axis];
    /* mutant survives (condition never): the overflow of a step that is not taken is UBSan's */
    if (extent == 1) { /* its stride can be anything */
        walk_axis(walk, axis + 1, to, from);
        return;
    }
    int64_t to_step = walk->dst.strides[axis] * walk->dst.item_bits;
    int64_t from_step =
        walk->src.strides == NULL ? 0 : walk->src.strides[axis] * walk->src.item_bits;
    for (int64_t i = 0; i < extent; i++) {
        walk_axis(walk, axis + 1, to + i * to_step, from + i * from_step);
    }
}

void
bits_copy(const bits_items *dst, const bits_items *src)
{
    bits_walk walk = {dst->layout, dst->dtype, side_of(dst), side_of(src)};
    walk_axis(&walk, 0, origin_of(dst), origin_of(src));
}

void
bits_fill(const bits_items *dst, const char *item)
{
    bits_walk walk = {dst->layout, dst->dtype, side_of(dst), {.base = (char *)item}};
    walk_axis(&walk, 0, origin_of(dst), 0);
}
