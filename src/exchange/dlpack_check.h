/* dlpack_check.h: is a foreign DLTensor's metadata sound, and which bytes does it reach?
 *
 * Owns:    the list of reasons why memory is refused or copied, and their texts, which exceptions
 *          and explain() say.
 * Threads: pure; reads the tensor and its shape and strides, nothing behind `data`.
 * Rule:    nothing is taken, messaged or dereferenced before this has said yes.
 */
#ifndef MD_DLPACK_CHECK_H
#define MD_DLPACK_CHECK_H

#include "arithmetic/dtype.h"
#include "arithmetic/layout.h"

/* DLPACK_FAULT_...: of a foreign tensor; from _DEVICE on, its shape, strides and element type are
 * sound.  REFUSED_..., COPY_...: sound memory is refused or copied, our Array on its way out
 * or CPU memory on its way in.   A text takes the fault's numbers a, b and c, in this order, as %lld. */
#define DLPACK_FAULT_LIST(X) \
    X(DLPACK_FAULT_NONE, "no fault") \
    X(DLPACK_FAULT_MAJOR, \
      "the tensor is of DLPack %lld.%lld; only major version %lld is supported") \
    X(DLPACK_FAULT_NDIM, "ndim (%lld) is not within 0 to %lld") \
    X(DLPACK_FAULT_SHAPE_NULL, "shape is NULL though ndim is %lld") \
    X(DLPACK_FAULT_ARRAY, \
      "shape or strides is at an address (%llx) that is not a multiple of " \
      "%lld, as int64 requires") \
    X(DLPACK_FAULT_EXTENT, LAYOUT_TEXT_EXTENT) \
    X(DLPACK_FAULT_DTYPE, "the element type (code %lld, bits %lld) is not one of DLPack 1.3") \
    X(DLPACK_FAULT_LANES, "the element type has %lld lanes; at least 1 is needed") \
    X(DLPACK_FAULT_OVERFLOW, \
      "shape and strides reach 2**60 bytes or farther, which no memory has") \
    X(DLPACK_FAULT_DATA_NULL, "data is NULL though the tensor has %lld items") \
    X(DLPACK_FAULT_SUBBYTE, \
      "items of %lld bits in %lld lanes cannot be padded: only one lane has " \
      "a byte of its own") \
    X(DLPACK_FAULT_DEVICE, "the tensor is on device (%lld, %lld); only Metal (8) and the CPU " \
                           "(1) can be read: copy it " \
                           "to the CPU in its framework first") \
    X(DLPACK_FAULT_OFFSET, "byte_offset (%llu) is larger than any buffer") \
    X(DLPACK_FAULT_ADDRESS, "data (%llx) with byte_offset (%lld) and an extent of %lld bytes " \
                            "passes the end of the address space") \
    X(DLPACK_FAULT_BELOW, "byte_offset (%lld) with negative strides reaches %lld bytes " \
                          "before it, past the start of the buffer") \
    X(DLPACK_FAULT_PAST, "byte_offset (%lld) plus extent (%lld bytes) passes the end of the " \
                         "buffer (%lld bytes)") \
    X(DLPACK_FAULT_MISALIGNED, "byte_offset (%lld) is not a multiple of the element's " \
                               "alignment (%lld bytes)") \
    X(DLPACK_FAULT_HANDLE, \
      "data (%llx) of the kDLMetal tensor is not an id<MTLBuffer>; a host " \
      "pointer belongs in a kDLCPU tensor") \
    X(DLPACK_FAULT_DEVICE_ID, \
      "the tensor names device (8, %lld), but its MTLBuffer belongs to " \
      "another device") \
    X(REFUSED_READONLY, "the array is read-only, which only a versioned tensor can say") \
    X(COPY_NEGATIVE, "stride %lld of axis %lld is negative, which consumers refuse") \
    X(COPY_APART, "packed sub-byte items are not contiguous, and consumers read the bytes as " \
                  "one run") \
    X(COPY_PADDED, "sub-byte items are padded, which only a versioned tensor can say") \
    X(COPY_PRIVATE, "private storage has no CPU address") \
    X(COPY_OFFSET, "byte_offset (%lld) is not a multiple of the itemsize (%lld), which " \
                   "consumers on Metal require") \
    X(COPY_MISALIGNED, "the address of its first item (0x%llx) is not a multiple of the " \
                       "element's alignment (%lld bytes)") \
    X(COPY_TOO_FAR, "its items reach 2**60 bytes or farther, which no memory has") \
    X(COPY_TOO_LONG, \
      "its whole pages (%lld bytes, with the rest of the pages %lld) are longer " \
      "than the device's max_buffer_length (%lld bytes)") \
    X(COPY_METAL, "Metal does not take its pages")

#define DLPACK_AS_ENUM(name, text) name,
typedef enum { DLPACK_FAULT_LIST(DLPACK_AS_ENUM) } dlpack_fault_code;
#undef DLPACK_AS_ENUM

typedef struct dlpack_fault {
    dlpack_fault_code code;
    int64_t a, b, c; /* the numbers of the text; 0 where it takes fewer */
} dlpack_fault;

/* `return dlpack_fail(...)`: fills the fault. */
static inline bool
dlpack_fail(dlpack_fault *fault, dlpack_fault_code code, int64_t a, int64_t b, int64_t c)
{
    *fault = (dlpack_fault){code, a, b, c};
    return false;
}

/* The name in the list: DLPACK_FAULT_NDIM. */
const char *dlpack_fault_name(const dlpack_fault *fault);

/* A sentence without its full stop, as layout_fault_text. */
fault_text dlpack_fault_text(const dlpack_fault *fault);

/* What the metadata of a sound tensor says. */
typedef struct dlpack_facts {
    strided_layout layout; /* offset 0; strides as they are, or C order where there are none */
    bool is_padded;        /* sub-byte items have a byte each; false for all others */
    int64_t nitems;
    int64_t first_nbytes; /* from element 0 down to the lowest byte: <= 0 */
    int64_t end_nbytes;   /* from element 0 up to one past the highest byte */
} dlpack_facts;

/* Shape, strides, dtype, and the bytes they reach.  `is_padded`: the IS_SUBBYTE_TYPE_PADDED
 * flag. */
bool dlpack_check(const DLTensor *tensor, bool is_padded, dlpack_facts *out,
                  dlpack_fault *fault);

/* Do the bytes of a CPU tensor lie within the address space?  Called only where there are
 * items. */
bool dlpack_check_address(const DLTensor *tensor, const dlpack_facts *facts,
                          dlpack_fault *fault);

/* Does element 0 of a Metal tensor lie where its type may lie, and no byte before the buffer?
 * Called only where there are items. */
bool dlpack_check_offset(const DLTensor *tensor, const dlpack_facts *facts,
                         dlpack_fault *fault);

/* Do the bytes end within a buffer of `nbytes`?  Called after dlpack_check_offset. */
bool dlpack_check_bounds(const DLTensor *tensor, const dlpack_facts *facts, uint64_t nbytes,
                         dlpack_fault *fault);

#endif /* MD_DLPACK_CHECK_H */
