/* dtype.c: see dtype.h. */
#include "arithmetic/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/layout.h"

/* name, code, bits, the buffer protocol's letter or 0, NumPy has it */
#define DTYPE_LIST(X) \
    X(bool, kDLBool, 8, '?', true) \
    X(int1, kDLInt, 1, 0, false) \
    X(int2, kDLInt, 2, 0, false) \
    X(int4, kDLInt, 4, 0, false) \
    X(int8, kDLInt, 8, 'b', true) \
    X(int16, kDLInt, 16, 'h', true) \
    X(int32, kDLInt, 32, 'i', true) \
    X(int64, kDLInt, 64, 'q', true) \
    X(uint1, kDLUInt, 1, 0, false) \
    X(uint2, kDLUInt, 2, 0, false) \
    X(uint4, kDLUInt, 4, 0, false) \
    X(uint8, kDLUInt, 8, 'B', true) \
    X(uint16, kDLUInt, 16, 'H', true) \
    X(uint32, kDLUInt, 32, 'I', true) \
    X(uint64, kDLUInt, 64, 'Q', true) \
    X(float16, kDLFloat, 16, 'e', true) \
    X(float32, kDLFloat, 32, 'f', true) \
    X(float64, kDLFloat, 64, 'd', true) \
    X(bfloat16, kDLBfloat, 16, 0, false) \
    X(complex32, kDLComplex, 32, 0, false) \
    X(complex64, kDLComplex, 64, 'f', true) \
    X(complex128, kDLComplex, 128, 'd', true) \
    X(float8_e3m4, kDLFloat8_e3m4, 8, 0, false) \
    X(float8_e4m3, kDLFloat8_e4m3, 8, 0, false) \
    X(float8_e4m3b11fnuz, kDLFloat8_e4m3b11fnuz, 8, 0, false) \
    X(float8_e4m3fn, kDLFloat8_e4m3fn, 8, 0, false) \
    X(float8_e4m3fnuz, kDLFloat8_e4m3fnuz, 8, 0, false) \
    X(float8_e5m2, kDLFloat8_e5m2, 8, 0, false) \
    X(float8_e5m2fnuz, kDLFloat8_e5m2fnuz, 8, 0, false) \
    X(float8_e8m0fnu, kDLFloat8_e8m0fnu, 8, 0, false) \
    X(float6_e2m3fn, kDLFloat6_e2m3fn, 6, 0, false) \
    X(float6_e3m2fn, kDLFloat6_e3m2fn, 6, 0, false) \
    X(float4_e2m1fn, kDLFloat4_e2m1fn, 4, 0, false)

#define DTYPE_AS_ROW(name, code, bits, letter, is_numpy) {#name, code, bits, letter, is_numpy},
const dtype_entry dtype_table[] = {DTYPE_LIST(DTYPE_AS_ROW)};
#undef DTYPE_AS_ROW
const int dtype_table_count = sizeof dtype_table / sizeof dtype_table[0];

/* The row of a code and its bits, counted from 1: each import asks. */
#define CODES (kDLFloat4_e2m1fn + 1)
#define MOST_BITS 128
#define DTYPE_AS_ENUM(name, code, bits, letter, is_numpy) ROW_##name,
enum { ROW_NONE, DTYPE_LIST(DTYPE_AS_ENUM) };
#undef DTYPE_AS_ENUM
#define DTYPE_AS_PLACE(name, code, bits, letter, is_numpy) [code][bits] = ROW_##name,
static const uint8_t rows[CODES][MOST_BITS + 1] = {DTYPE_LIST(DTYPE_AS_PLACE)};
#undef DTYPE_AS_PLACE

/* ---- look-ups ---- */

const dtype_entry *
dtype_find(DLDataType dtype)
{
    if (dtype.code >= CODES || dtype.bits > MOST_BITS) {
        return NULL;
    }
    int row = rows[dtype.code][dtype.bits];
    return row == ROW_NONE ? NULL : &dtype_table[row - 1];
}

bool
dtype_is_known(DLDataType dtype)
{
    return dtype.lanes >= 1 && dtype_find(dtype) != NULL;
}

/* The lanes after a name: nothing, or "x" and a number from 2.  0: neither. */
static unsigned long
parse_lanes(const char *suffix)
{
    if (suffix[0] == '\0') {
        return 1;
    }
    if (suffix[0] != 'x' || suffix[1] < '1' || suffix[1] > '9') {
        return 0;
    }
    char *end;
    unsigned long lanes = strtoul(suffix + 1, &end, 10);
    return *end == '\0' && lanes >= 2 && lanes <= UINT16_MAX ? lanes : 0;
}

bool
dtype_from_name(const char *name, DLDataType *out)
{
    for (int i = 0; i < dtype_table_count; i++) {
        const dtype_entry *entry = &dtype_table[i];
        size_t length = strlen(entry->name);
        if (strncmp(name, entry->name, length) != 0) {
            continue;
        }
        unsigned long lanes = parse_lanes(name + length);
        if (lanes > 0) {
            *out = (DLDataType){entry->code, entry->bits, (uint16_t)lanes};
            return true;
        }
    }
    return false;
}

void
dtype_write_name(DLDataType dtype, char *out)
{
    const dtype_entry *entry = dtype_find(dtype);
    const char *name = entry == NULL ? "unknown" : entry->name;
    if (dtype.lanes == 1) {
        (void)snprintf(out, DTYPE_NAME_MAX, "%s", name);
    }
    else {
        (void)snprintf(out, DTYPE_NAME_MAX, "%sx%u", name, (unsigned)dtype.lanes);
    }
}

/* ---- sizes ---- */

bool
dtype_packed_nbytes(DLDataType dtype, int64_t count, int64_t *out)
{
    int64_t bits = dtype_item_bits(dtype);
    if (bits % 8 == 0) {
        return layout_multiply(count, bits / 8, out);
    }
    int64_t total;
    if (!layout_multiply(count, bits, &total) || !layout_add(total, 7, &total)) {
        return false;
    }
    *out = total / 8;
    return true;
}

int64_t
dtype_alignment(DLDataType dtype)
{
    if (dtype.bits < 8) {
        return 1;
    }
    /* A complex number is two reals to CPU and GPU alike. */
    return dtype.code == kDLComplex ? dtype.bits / 16 : dtype.bits / 8;
}

/* ---- the buffer protocol ---- */

const char *
dtype_buffer_format(DLDataType dtype)
{
    const dtype_entry *entry = dtype_find(dtype);
    if (entry == NULL || entry->buffer_format == 0 || dtype.lanes != 1) {
        return NULL;
    }
    if (entry->code == kDLComplex) {
        return entry->bits == 64 ? "Zf" : "Zd";
    }
    /* NumPy calls its int64 "l" where that has 64 bits. */
    switch (entry->buffer_format) {
    case '?': return "?";
    case 'b': return "b";
    case 'h': return "h";
    case 'i': return "i";
    case 'q': return sizeof(long) == 8 ? "l" : "q";
    case 'B': return "B";
    case 'H': return "H";
    case 'I': return "I";
    case 'Q': return sizeof(long) == 8 ? "L" : "Q";
    case 'e': return "e";
    case 'f': return "f";
    default: return "d";
    }
}

/* The DLPack code of a format's letter; -1 for one that names no number. */
static int
code_of_letter(char letter)
{
    if (strchr("bhilqn", letter) != NULL) {
        return kDLInt;
    }
    if (strchr("BHILQN", letter) != NULL) {
        return kDLUInt;
    }
    if (strchr("efd", letter) != NULL) {
        return kDLFloat;
    }
    return letter == '?' ? kDLBool : -1;
}

bool
dtype_from_buffer_format(const char *format, int64_t itemsize, DLDataType *out)
{
    const char *letters = format == NULL ? "B" : format;
    bool is_swapped = letters[0] == '>' || letters[0] == '!';
    if (letters[0] != '\0' && strchr("@=<>!", letters[0]) != NULL) {
        letters++;
    }
    bool is_complex = letters[0] == 'Z';
    if (is_complex) {
        letters++;
    }
    if (letters[0] == '\0' || letters[1] != '\0' || itemsize < 1 || itemsize > 16 ||
        (is_swapped && itemsize > 1)) {
        return false;
    }
    int code = code_of_letter(letters[0]);
    if (code < 0 || (is_complex && code != kDLFloat)) {
        return false;
    }
    *out = (DLDataType){(uint8_t)(is_complex ? kDLComplex : code), (uint8_t)(itemsize * 8), 1};
    return dtype_is_known(*out);
}
