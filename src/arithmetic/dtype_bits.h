/* dtype_bits.h: items that do not fall on bytes: int4, fp6 and such, packed or padded.
 *
 * Packed:  item i begins i * bits * lanes bits after element 0, the lowest bit of a byte
 *          first. Source: dlpack.h DLDataType, "little bit-endian".
 * Padded:  each item, of one lane, has a byte to itself and lies in its lowest bits; the
 *          others are written as 0 and not read.
 * Threads: pure functions over the caller's memory.  Writing an item rewrites the bytes that
 *          it shares with others: two threads must not write into one byte.
 * Units:   shape and strides in items; bits and bytes as the names say.
 */
#ifndef MD_DTYPE_BITS_H
#define MD_DTYPE_BITS_H

#include "arithmetic/dtype.h"
#include "arithmetic/layout.h"

typedef struct bits_items {
    const strided_layout *layout; /* its offset, in items, counts too */
    char *base;                   /* `first_bit` is counted from here */
    int64_t first_bit;            /* of the element at offset 0 */
    DLDataType dtype;
    bool is_padded;
} bits_items;

/* `count` bits, 1 to 8, from bit `at` on; it may be negative. */
uint8_t bits_read(const char *base, int64_t at, int count);
/* The bits beside them stay. */
void bits_write(char *base, int64_t at, int count, uint8_t value);

/* The bytes, relative to the one of element 0, that hold the items: false on overflow.  The
 * layout has items; `first_bit` as in bits_items. */
bool bits_byte_span(const strided_layout *layout, int64_t item_bits, int64_t first_bit,
                    int64_t *first, int64_t *end);

/* The same items as a layout of whole bytes, where rows of them begin and end on bytes; false
 * where they do not. */
bool bits_as_bytes(const strided_layout *layout, int64_t item_bits, strided_layout *out);

/* Item by item, between equal shapes and element types.  The two must not overlap. */
void bits_copy(const bits_items *dst, const bits_items *src);

/* One item, packed from bit 0 of `item` on, into every place. */
void bits_fill(const bits_items *dst, const char *item);

#endif /* MD_DTYPE_BITS_H */
