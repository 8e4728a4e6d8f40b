/* dtype.h: DLPack's element types as a table, without Python.
 *
 * Owns:    the table of named types and the arithmetic of their sizes.
 * Threads: pure functions over constant data.
 * Units:   bits and bytes as the names say.  A DLDataType is passed by value.
 * Source:  SPEC dlpack.h DLDataType, DLDataTypeCode (DLPack 1.3).
 */
#ifndef MD_DTYPE_H
#define MD_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

/* The longest name is "float8_e4m3b11fnuz", its longest suffix "x65535". */
typedef struct dtype_text {
    char text[32];
} dtype_text;

typedef struct dtype_entry {
    const char *name;   /* "float32", "bfloat16", "int4", "float4_e2m1fn" ... */
    uint8_t code;       /* DLDataTypeCode */
    uint8_t bits;       /* of one lane */
    const char *format; /* "f", "Zd": the buffer protocol's; NULL: it has none, nor has NumPy */
    const char *aliases; /* other letters that mean it where the itemsize agrees */
} dtype_entry;

/* The table: one row a public name, ended by count. */
extern const dtype_entry dtype_table[];
extern const int dtype_table_count;

/* The row of `dtype` with its lanes put aside; NULL for an opaque handle, an unknown code,
 * or a width that the code does not have. */
const dtype_entry *dtype_find(DLDataType dtype);
/* By name, "float32", with an optional lanes suffix "float4_e2m1fnx2".  False: no such name. */
bool dtype_from_name(const char *name, DLDataType *out);
/* The name with its lanes suffix, by value: dtype_name(dtype).text is there until the end of the
 * expression that it stands in. */
dtype_text dtype_name(DLDataType dtype);

static inline bool
dtype_equal(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Is this a type that an Array can have: a row of the table, lanes at least 1? */
bool dtype_is_known(DLDataType dtype);
/* bits * lanes: 4 for int4, 8 for float4_e2m1fnx2. */
static inline int64_t
dtype_item_bits(DLDataType dtype)
{
    return (int64_t)dtype.bits * dtype.lanes;
}
/* False for int4, fp4, fp6 and such, whose items do not fall on bytes. */
static inline bool
dtype_is_whole_bytes(DLDataType dtype)
{
    return dtype_item_bits(dtype) % 8 == 0;
}
/* Bytes in one item, rounded up. */
static inline int64_t
dtype_itemsize(DLDataType dtype)
{
    return (dtype_item_bits(dtype) + 7) / 8;
}
/* Bits from one item to the next; padded ones have a byte each. */
static inline int64_t
dtype_step_bits(DLDataType dtype, bool is_padded)
{
    /* mutant survives (product): padded items have 8 bits and one lane */
    return is_padded ? 8 * dtype_itemsize(dtype) : dtype_item_bits(dtype);
}
/* What an item's address must be a multiple of: the scalar's size, half of it for complex. */
int64_t dtype_alignment(DLDataType dtype);
/* The format of the buffer protocol, in native letters: "f", "Zd", "?".  NULL: it has none. */
const char *dtype_buffer_format(DLDataType dtype);
/* The other way, from a PEP 3118 format (NULL means "B") and its itemsize.  False: structured,
 * non-native byte order, or unknown. */
bool dtype_from_buffer_format(const char *format, int64_t itemsize, DLDataType *out);

/* ---- dtype_float.c: small floats, of 4 to 16 bits, as doubles ----
 *
 * Source: the names, as ml_dtypes and dlpack.h read them: float8_e4m3fn has 4 bits of exponent
 *         and 3 of mantissa; "fn" means no infinity, "uz" no negative zero, and the OCP
 *         Microscaling Formats Specification v1.0, section 5.3, for those of 4 and 6 bits,
 *         which have no NaN either. */

/* The value that `bits` stand for; bits above the type's width are not looked at. */
double dtype_decode_float(uint8_t code, uint32_t bits);

/* `value` rounded once, to nearest, ties to even (float8_e8m0fnu: upwards).  Past the largest
 * number: infinity, else NaN, else the largest number.  False: a NaN, and the type has none. */
bool dtype_encode_float(uint8_t code, double value, uint32_t *out);

#endif /* MD_DTYPE_H */
