/* layout.h: strided layouts as arithmetic over int64, without data and without Python.
 *
 * Owns:    nothing.  A strided_layout is a plain value, about 1 KiB, made on the stack.
 * Calls:   nothing but string.h, and snprintf for the text of a fault.
 * Threads: every function is pure: any thread, with or without the GIL.
 * Failure: a function that can fail returns false, fills `*fault` and leaves `*out`
 *          unspecified. `out` may be the same object as `in`.
 * Units:   shape, strides and offset count items; only names with `nbytes` count bytes.
 */
#ifndef MD_LAYOUT_H
#define MD_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LAYOUT_MAX_NDIM 64
#define LAYOUT_FEW 8 /* so many dimensions are copied as a block, without a loop */

typedef struct strided_layout {
    int ndim;                         /* 0 .. LAYOUT_MAX_NDIM */
    int64_t itemsize;                 /* bytes in one item, >= 1 */
    int64_t offset;                   /* items from the base to element 0; may be negative */
    int64_t shape[LAYOUT_MAX_NDIM];   /* only the first ndim entries mean anything */
    int64_t strides[LAYOUT_MAX_NDIM]; /* likewise */
} strided_layout;

/* Used for tensors too: dlpack_check.h. */
#define LAYOUT_TEXT_EXTENT "extent %lld of axis %lld is negative"

/* One list makes the codes and the texts.  A text takes the fault's two numbers, a and b,
 * in this order, as %lld. */
#define LAYOUT_FAULT_LIST(X) \
    X(LAYOUT_FAULT_NONE, "no fault") \
    X(LAYOUT_FAULT_NDIM, "a layout has 0 to 64 dimensions, not %lld") \
    X(LAYOUT_FAULT_EXTENT, LAYOUT_TEXT_EXTENT) \
    X(LAYOUT_FAULT_ITEMSIZE, "itemsize (%lld) must be at least 1 byte") \
    X(LAYOUT_FAULT_OVERFLOW, "extents and strides reach 2**63 bytes or farther, more than " \
                             "an int64 can count; give smaller ones") \
    X(LAYOUT_FAULT_AXIS, "axis %lld is out of range for %lld dimensions") \
    X(LAYOUT_FAULT_AXIS_TWICE, "axis %lld is named twice") \
    X(LAYOUT_FAULT_AXES, "%lld axes are given for %lld dimensions") \
    X(LAYOUT_FAULT_INDEX, "index %lld is out of range for an axis of extent %lld") \
    X(LAYOUT_FAULT_VOLUME, "a layout of %lld items cannot take a shape of %lld items") \
    X(LAYOUT_FAULT_INFER, "only one extent of a shape may be -1") \
    X(LAYOUT_FAULT_NOT_A_VIEW, "the strides do not allow this shape without a copy") \
    X(LAYOUT_FAULT_BROADCAST, "extent %lld cannot be broadcast to %lld") \
    X(LAYOUT_FAULT_BROADCAST_NDIM, "%lld dimensions cannot be broadcast to %lld") \
    X(LAYOUT_FAULT_SQUEEZE, \
      "axis %lld has extent %lld; only axes of extent 1 can be squeezed") \
    X(LAYOUT_FAULT_REPACK, "items of %lld bytes cannot be repacked as items of %lld bytes") \
    X(LAYOUT_FAULT_PACK_STRIDE, "the stride of the axis to repack must be 1, not %lld") \
    X(LAYOUT_FAULT_PACK_EXTENT, "extent %lld of the axis to repack must be a positive " \
                                "multiple of %lld") \
    X(LAYOUT_FAULT_PACK_OTHER, "every other stride (%lld) must be a multiple of %lld") \
    X(LAYOUT_FAULT_PACK_OFFSET, "slice_offset (%lld) must be a multiple of %lld") \
    X(LAYOUT_FAULT_PACK_ADDRESS, "data_ptr (%lld) must be a multiple of the itemsize (%lld)") \
    X(LAYOUT_FAULT_NEGATIVE, "items before the base (min_offset %lld) have no required size")

#define LAYOUT_AS_ENUM(name, text) name,
typedef enum { LAYOUT_FAULT_LIST(LAYOUT_AS_ENUM) } layout_fault_code;
#undef LAYOUT_AS_ENUM

typedef struct layout_fault {
    layout_fault_code code;
    int64_t a, b; /* the two numbers of the text; 0 where it takes fewer */
} layout_fault;

/* A sentence without its full stop, by value: layout_fault_text(...).text is there until the end
 * of the expression that it stands in. */
typedef struct fault_text {
    char text[200];
} fault_text;
fault_text layout_fault_text(const layout_fault *fault);
/* A text of another list of faults with its numbers, of which it takes three at most. */
fault_text layout_text_of(const char *format, int64_t a, int64_t b, int64_t c);

/* `return layout_fail(...)`: fills the fault. */
static inline bool
layout_fail(layout_fault *fault, layout_fault_code code, int64_t a, int64_t b)
{
    *fault = (layout_fault){code, a, b};
    return false;
}

/* ---- checked arithmetic: the only way sizes are multiplied in this project ---- */
static inline bool /* false on overflow */
layout_multiply(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool /* false on overflow */
layout_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* A stride in bytes; one item's where 64 bits cannot count it: an axis with so long a step has
 * no second item to step to. */
static inline int64_t
layout_stride_nbytes(const strided_layout *layout, int axis)
{
    int64_t nbytes;
    return layout_multiply(layout->strides[axis], layout->itemsize, &nbytes) ? nbytes
                                                                             : layout->itemsize;
}

/* Copy a layout, but of its kilobyte only what its dimensions use.  Entries past ndim may be
 * copied, and are never read. */
static inline void
layout_copy(const strided_layout *in, strided_layout *out)
{
    out->ndim = in->ndim;
    out->itemsize = in->itemsize;
    out->offset = in->offset;
    if (in->ndim <= LAYOUT_FEW) {
        memcpy(out->shape, in->shape, LAYOUT_FEW * sizeof(int64_t));
        memcpy(out->strides, in->strides, LAYOUT_FEW * sizeof(int64_t));
    }
    else {
        size_t nbytes = (size_t)in->ndim * sizeof(int64_t);
        memcpy(out->shape, in->shape, nbytes);
        memcpy(out->strides, in->strides, nbytes);
    }
}

/* Copy numbers that were just written, one at a time: a wider load would wait until they have
 * left the processor's store buffer. */
static inline void
layout_copy_fresh(int64_t *to, const int64_t *from, int count)
{
    const volatile int64_t *one_by_one = from;
    for (int i = 0; i < count; i++) {
        to[i] = one_by_one[i];
    }
}

static inline void
layout_drop_axis(strided_layout *layout, int axis)
{
    layout->ndim--;
    for (int i = axis; i < layout->ndim; i++) {
        layout->shape[i] = layout->shape[i + 1];
        layout->strides[i] = layout->strides[i + 1];
    }
}

/* The bits that |value| uses, INT64_MIN counted as INT64_MAX.  If the union over some values is
 * below a power of two, each |value| is. */
static inline uint64_t
layout_magnitude(int64_t value)
{
    return (uint64_t)(value ^ value >> 63);
}

/* |value|, of INT64_MIN too. */
static inline uint64_t
layout_absolute(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

/* The greatest common divisor; the other number where one is 0. */
static inline uint64_t
layout_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- making a layout ---- */

/* A C-ordered (`order` 'C') or Fortran-ordered ('F') layout at offset 0.  Refuses what
 * overflows int64 when counted in bytes. */
bool layout_set_dense(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
                      char order, layout_fault *fault);

/* Dense strides at offset 0 in any order, which names each axis: the first has the longest
 * stride, the last one stride 1.  An empty layout has strides 0.  Refuses what overflows int64
 * when counted in bytes. */
bool layout_set_ordered(strided_layout *out, int ndim, const int64_t *shape, int64_t itemsize,
                        int count, const int64_t *order, layout_fault *fault);

/* A layout with the given strides (NULL: C order).  Shape and strides may be `out`'s own.
 * Refuses ndim out of range, negative extents, and any product or offset that overflows int64
 * in items or in bytes. */
bool layout_set(strided_layout *out, int ndim, const int64_t *shape, const int64_t *strides,
                int64_t itemsize, int64_t offset, layout_fault *fault);

/* ---- questions; all of them total on a layout that layout_set accepted ---- */
int64_t layout_volume(const strided_layout *in); /* items; 1 for ndim 0 */

/* The offsets (items, slice offset included) of the lowest and the highest item touched.
 * An empty layout gives *min == *max == offset. */
void layout_offset_bounds(const strided_layout *in, int64_t *min, int64_t *max);

/* strides of extent-1 axes do not count */
bool layout_is_contiguous_c(const strided_layout *in);
bool layout_is_contiguous_f(const strided_layout *in);
bool layout_is_contiguous_any(const strided_layout *in); /* in some order of the axes */
bool layout_is_empty(const strided_layout *in);          /* an extent is 0 */
bool layout_is_unique(const strided_layout *in);         /* no two indices share an item */
/* The axes by length of stride, the longest first; equal ones by extent, the largest first,
 * then by number.  `axes` has room for ndim. */
void layout_stride_order(const strided_layout *in, int64_t *axes);
/* Bit i is set if axes i - 1 and i can be one: the stride of the first is the stride times the
 * extent of the second. */
uint64_t layout_merge_mask(const strided_layout *in);
/* The largest itemsize, up to `max`, that layout_repacked takes.  It is found by greatest
 * common divisors; the layout's own is returned where there is no larger one. */
int64_t layout_max_itemsize(const strided_layout *in, int64_t max, int64_t address, int axis);
bool layout_same_shape(const strided_layout *a, const strided_layout *b);

/* ---- axes as a caller names them, negative ones from the end ---- */

/* One of `ndim`. */
bool layout_axis(int64_t given, int ndim, int *axis, layout_fault *fault);
/* Several, none twice: their numbers, and a bit for each. */
bool layout_axes(int count, const int64_t *given, int ndim, int *axes, uint64_t *bits,
                 layout_fault *fault);

/* ---- one axis: what an index or a range of it does to offset and stride ---- */

/* `index` counts from the end where negative.  Adds to `*offset`. */
bool layout_index_axis(const strided_layout *in, int axis, int64_t index, int64_t *offset,
                       layout_fault *fault);
/* start, length and step as PySlice_AdjustIndices leaves them: already within the axis, and the
 * step is not 0. */
bool layout_cut_axis(const strided_layout *in, int axis, int64_t start, int64_t length,
                     int64_t step, int64_t *offset, int64_t *stride, layout_fault *fault);
/* The stride of an axis of extent 1 put before `axis` (0..ndim), which keeps a contiguous
 * layout contiguous to a reader of strides. */
int64_t layout_unit_stride(const strided_layout *in, int axis);

/* ---- views: each writes a layout over the same items ---- */
/* What makes a view of some numbers: a shape, or axes as above. */
typedef bool layout_view(const strided_layout *in, int count, const int64_t *values,
                         strided_layout *out, layout_fault *fault);
/* All axes in another order. */
layout_view layout_permuted;
/* One extent may be -1 and is worked out. NOT_A_VIEW: would need a copy. */
layout_view layout_reshaped;
/* Drops these axes.  Refuses one of another extent than 1. */
layout_view layout_squeezed_axes;
/* One axis more, of extent 1: its place in the result.  Its stride is layout_unit_stride. */
layout_view layout_expanded;
/* New axes of extent 1: their places in the result.  Each gets the stride with which the axis after
 * it would go on.  Refuses more than 64 dimensions, and strides that overflow. */
layout_view layout_unsqueezed;
/* Another shape by NumPy's rules: stride 0 on grown axes. */
layout_view layout_broadcast;
/* drops every extent-1 axis */
void layout_squeezed(const strided_layout *in, strided_layout *out);
/* Axis i joins axis i - 1 for each bit i of `mask` that layout_merge_mask has too. No
 * dimensions become one of extent 1. */
void layout_merge_axes(strided_layout *layout, uint64_t mask);
/* The same bytes, at `address` (0: not known), as items of another size along `axis`, which has items
 * and stride 1; keep_axis false drops it when its extent becomes 1. */
bool layout_repacked(const strided_layout *in, int64_t itemsize, int64_t address, int axis,
                     bool keep_axis, strided_layout *out, layout_fault *fault);

/* ---- layout_overlap.c: do two layouts touch a byte in common? ----
 *
 * The answer is the truth and not a bound.  The question is a linear equation with bounded
 * unknowns, which is NP-hard in general.  Dense arrays, slices of one array and any two
 * one-dimensional views are answered in a few steps; after OVERLAP_SEARCH_STEPS of search the
 * rest is counted out in a bit per position (at most 256 MiB, gone on return: time proportional
 * to the bytes both span, times the logarithms of the extents); what spans more than that is
 * searched to the end, which can take as long as all pairs of items. */

#define OVERLAP_SEARCH_STEPS 100000

/* Items in memory: `address` is that of the base, to which the layout's offset is added.
 * Every byte of them lies below address 2**63. */
typedef struct overlap_items {
    const strided_layout *layout;
    uint64_t address;
} overlap_items;

typedef enum { OVERLAP_NO, OVERLAP_YES, OVERLAP_STOPPED } overlap_answer;

/* `keep_on` is called every OVERLAP_SEARCH_STEPS steps, from the thread of the call; false
 * ends the search with OVERLAP_STOPPED.  NULL: nobody asks. */
overlap_answer layout_overlap(const overlap_items *a, const overlap_items *b,
                              bool (*keep_on)(void *context), void *context);

#endif /* MD_LAYOUT_H */
