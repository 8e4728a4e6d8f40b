/* layout_repack.c: the same bytes as items of another size; see layout.h. */
#include "arithmetic/layout.h"

static bool
check_packing(const strided_layout *in, int64_t factor, int64_t address, int axis,
              layout_fault *fault)
{
    int64_t itemsize = in->itemsize * factor; /* the one asked for */
    if (address % itemsize != 0) {
        return layout_fail(fault, LAYOUT_FAULT_PACK_ADDRESS, address, itemsize);
    }
    if (in->shape[axis] % factor != 0) {
        return layout_fail(fault, LAYOUT_FAULT_PACK_EXTENT, in->shape[axis], factor);
    }
    for (int i = 0; i < in->ndim; i++) {
        if (i != axis && in->strides[i] % factor != 0) {
            return layout_fail(fault, LAYOUT_FAULT_PACK_OTHER, in->strides[i], factor);
        }
    }
    return in->offset % factor == 0 ||
           layout_fail(fault, LAYOUT_FAULT_PACK_OFFSET, in->offset, factor);
}

static bool
check_repack(const strided_layout *in, int64_t itemsize, int64_t address, int axis,
             layout_fault *fault)
{
    if (itemsize < 1) {
        return layout_fail(fault, LAYOUT_FAULT_ITEMSIZE, itemsize, 0);
    }
    if (itemsize % in->itemsize != 0 && in->itemsize % itemsize != 0) {
        return layout_fail(fault, LAYOUT_FAULT_REPACK, in->itemsize, itemsize);
    }
    if (in->shape[axis] == 0) {
        return layout_fail(fault, LAYOUT_FAULT_PACK_EXTENT, 0, 1);
    }
    if (in->strides[axis] != 1) {
        return layout_fail(fault, LAYOUT_FAULT_PACK_STRIDE, in->strides[axis], 0);
    }
    return itemsize < in->itemsize ||
           check_packing(in, itemsize / in->itemsize, address, axis, fault);
}

/* A count of items, of which `joined` become one, or one `split`; the other is 1.  False: too many. */
static inline bool
recount(int64_t count, int64_t joined, int64_t split, int64_t *out)
{
    if (joined == 1) { /* a division takes longer than all the rest */
        return layout_multiply(count, split, out);
    }
    *out = count / joined;
    return true;
}

bool
layout_repacked(const strided_layout *in, int64_t itemsize, int64_t address, int axis,
                bool keep_axis, strided_layout *out, layout_fault *fault)
{
    if (!check_repack(in, itemsize, address, axis, fault)) {
        return false;
    }
    int64_t joined = itemsize > in->itemsize ? itemsize / in->itemsize : 1;
    int64_t split = in->itemsize > itemsize ? in->itemsize / itemsize : 1;
    bool fits = recount(in->offset, joined, split, &out->offset);
    for (int i = 0; i < in->ndim; i++) {
        int64_t extent = in->shape[i], stride = in->strides[i];
        /* mutant survives (dropped assignment): its caller works in place */
        out->shape[i] = extent;
        out->strides[i] = stride;
        fits &= i == axis ? recount(extent, joined, split, &out->shape[i])
                          : recount(stride, joined, split, &out->strides[i]);
    }
    out->ndim = in->ndim;
    out->itemsize = itemsize;
    if (!keep_axis && out->shape[axis] == 1) {
        layout_drop_axis(out, axis);
    }
    return fits || layout_fail(fault, LAYOUT_FAULT_OVERFLOW, 0, 0);
}

/* The common divisor of `divisor` and of `count` items in bytes, whose sign does not matter. */
static uint64_t
divide_further(const strided_layout *in, uint64_t divisor, int64_t count)
{
    int64_t nbytes;
    if (!layout_multiply(count, in->itemsize, &nbytes)) {
        /* unreached: the fuzzers reach it */
        return layout_common_divisor(divisor, (uint64_t)in->itemsize);
    }
    return layout_common_divisor(divisor, layout_absolute(nbytes));
}

/* The common divisor with a power of two is the lowest bit of any of the numbers; that a
 * product wraps does not reach it. */
static int64_t
find_max_power(const strided_layout *in, int64_t max, int64_t address, int axis)
{
    uint64_t items = (uint64_t)in->offset;
    for (int i = 0; i < in->ndim; i++) {
        items |= (uint64_t)(i == axis ? in->shape[i] : in->strides[i]);
    }
    uint64_t bits = (items * (uint64_t)in->itemsize) | (uint64_t)max | (uint64_t)address;
    int64_t found = (int64_t)(bits & (0 - bits));
    return found % in->itemsize == 0 || in->itemsize % found == 0 ? found : in->itemsize;
}

int64_t
layout_max_itemsize(const strided_layout *in, int64_t max, int64_t address, int axis)
{
    int64_t itemsize = in->itemsize;
    if (in->shape[axis] == 0 || in->strides[axis] != 1) {
        return itemsize;
    }
    if ((max & (max - 1)) == 0) {
        return find_max_power(in, max, address, axis);
    }
    uint64_t divisor = layout_common_divisor((uint64_t)max, layout_absolute(address));
    for (int i = 0; i < in->ndim; i++) {
        divisor = divide_further(in, divisor, i == axis ? in->shape[i] : in->strides[i]);
    }
    int64_t found = (int64_t)divide_further(in, divisor, in->offset);
    return found % itemsize == 0 || itemsize % found == 0 ? found : itemsize;
}
