/* dlpack_check.c: see dlpack_check.h. */
#include "exchange/dlpack_check.h"

#include "arithmetic/dtype_bits.h"

#define DLPACK_AS_TEXT(name, text) [name] = text,
static const char *const fault_texts[] = {DLPACK_FAULT_LIST(DLPACK_AS_TEXT)};
#undef DLPACK_AS_TEXT

#define DLPACK_AS_NAME(name, text) [name] = #name,
static const char *const fault_names[] = {DLPACK_FAULT_LIST(DLPACK_AS_NAME)};
#undef DLPACK_AS_NAME

const char *
dlpack_fault_name(const dlpack_fault *fault)
{
    return fault_names[fault->code];
}

fault_text
dlpack_fault_text(const dlpack_fault *fault)
{
    return layout_text_of(fault_texts[fault->code], fault->a, fault->b, fault->c);
}

/* SPEC import-dtype, import-lanes */
static bool
check_dtype(DLDataType dtype, dlpack_fault *fault)
{
    if (dtype.lanes == 0) {
        return dlpack_fail(fault, DLPACK_FAULT_LANES, 0, 0, 0);
    }
    /* SPEC dlpack.h DLDataTypeCode: a consumer must stop importing what it does not know. */
    if (!dtype_is_known(dtype)) {
        return dlpack_fail(fault, DLPACK_FAULT_DTYPE, dtype.code, dtype.bits, 0);
    }
    return true;
}

/* C forbids reading an int64 at an address that is not aligned. */
static bool
check_array(const int64_t *array, dlpack_fault *fault)
{
    const int64_t alignment = _Alignof(int64_t);
    int64_t address = (int64_t)(uintptr_t)array;
    return address % alignment == 0 ||
           dlpack_fail(fault, DLPACK_FAULT_ARRAY, address, alignment, 0);
}

/* SPEC import-0d, import-shape */
static bool
check_shape(const DLTensor *tensor, dlpack_fault *fault)
{
    if (tensor->ndim < 0 || tensor->ndim > LAYOUT_MAX_NDIM) {
        return dlpack_fail(fault, DLPACK_FAULT_NDIM, tensor->ndim, LAYOUT_MAX_NDIM, 0);
    }
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        return dlpack_fail(fault, DLPACK_FAULT_SHAPE_NULL, tensor->ndim, 0, 0);
    }
    return tensor->ndim == 0 ||
           (check_array(tensor->shape, fault) && check_array(tensor->strides, fault));
}

/* Where no step is ever taken, in an empty tensor and along axes of extent 1, strides may be
 * anything.  They are kept, not judged: torch reads its memory formats from them.
 * SPEC reliability: strides of size-1 dimensions. */
/* SPEC import-null-strides, import-size-1-strides, import-negative-strides */
static bool
take_layout(const DLTensor *tensor, strided_layout *out, dlpack_fault *fault)
{
    layout_fault refused;
    if (layout_set(out, tensor->ndim, tensor->shape, tensor->strides,
                   dtype_itemsize(tensor->dtype), 0, &refused)) {
        return true;
    }
    return refused.code == LAYOUT_FAULT_EXTENT
               ? dlpack_fail(fault, DLPACK_FAULT_EXTENT, refused.a, refused.b, 0)
               : dlpack_fail(fault, DLPACK_FAULT_OVERFLOW, 0, 0, 0);
}

/* SPEC import-empty, import-subbyte, import-overflow */
bool
dlpack_check(const DLTensor *tensor, bool is_padded, dlpack_facts *out, dlpack_fault *fault)
{
    if (!check_shape(tensor, fault) || !check_dtype(tensor->dtype, fault) ||
        !take_layout(tensor, &out->layout, fault)) {
        return false;
    }
    if (is_padded && tensor->dtype.bits < 8 && tensor->dtype.lanes > 1) {
        return dlpack_fail(fault, DLPACK_FAULT_SUBBYTE, tensor->dtype.bits, tensor->dtype.lanes,
                           0);
    }
    out->is_padded = is_padded && tensor->dtype.bits < 8;
    out->nitems = layout_volume(&out->layout);
    out->first_nbytes = out->end_nbytes = 0;
    if (out->nitems == 0) {
        /* SPEC dlpack.h: without items data may be NULL; nothing else is checked */
        return true;
    }
    if (tensor->data == NULL) {
        return dlpack_fail(fault, DLPACK_FAULT_DATA_NULL, out->nitems, 0, 0);
    }
    /* counted in bits: packed items may begin on any */
    return bits_byte_span(&out->layout, dtype_step_bits(tensor->dtype, out->is_padded), 0,
                          &out->first_nbytes, &out->end_nbytes) ||
           dlpack_fail(fault, DLPACK_FAULT_OVERFLOW, 0, 0, 0);
}

/* SPEC import-overflow */
bool
dlpack_check_address(const DLTensor *tensor, const dlpack_facts *facts, dlpack_fault *fault)
{
    uintptr_t first, lowest, end;
    if (tensor->byte_offset > INT64_MAX) {
        return dlpack_fail(fault, DLPACK_FAULT_OFFSET, (int64_t)tensor->byte_offset, 0, 0);
    }
    if (__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &first) ||
        __builtin_add_overflow(first, facts->first_nbytes, &lowest) ||
        __builtin_add_overflow(first, facts->end_nbytes, &end)) {
        return dlpack_fail(fault, DLPACK_FAULT_ADDRESS, (int64_t)(uintptr_t)tensor->data,
                           (int64_t)tensor->byte_offset, facts->end_nbytes);
    }
    return true;
}

/* SPEC import-offset */
bool
dlpack_check_offset(const DLTensor *tensor, const dlpack_facts *facts, dlpack_fault *fault)
{
    int64_t end;
    if (tensor->byte_offset > INT64_MAX ||
        !layout_add((int64_t)tensor->byte_offset, facts->end_nbytes, &end)) {
        return dlpack_fail(fault, DLPACK_FAULT_OFFSET, (int64_t)tensor->byte_offset, 0, 0);
    }
    int64_t offset = (int64_t)tensor->byte_offset;
    if (offset + facts->first_nbytes < 0) {
        int64_t before = facts->first_nbytes == INT64_MIN ? INT64_MAX : -facts->first_nbytes;
        return dlpack_fail(fault, DLPACK_FAULT_BELOW, offset, before, 0);
    }
    int64_t alignment = dtype_alignment(tensor->dtype);
    /* most are 0, and need no division */
    if (offset != 0 && offset % alignment != 0) {
        return dlpack_fail(fault, DLPACK_FAULT_MISALIGNED, offset, alignment, 0);
    }
    return true;
}

/* SPEC import-bounds */
bool
dlpack_check_bounds(const DLTensor *tensor, const dlpack_facts *facts, uint64_t nbytes,
                    dlpack_fault *fault)
{
    return tensor->byte_offset + (uint64_t)facts->end_nbytes <= nbytes ||
           dlpack_fail(fault, DLPACK_FAULT_PAST, (int64_t)tensor->byte_offset,
                       facts->end_nbytes, (int64_t)nbytes);
}
