/* dtype.c: see dtype.h. */
#include "arithmetic/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/layout.h"

/* The element types: name, code, bits, and the buffer protocol's format with other letters that
 * mean the same.  All else that lists types reads this list, or a test holds it beside it. */
#define DTYPE_LIST(X) \
    X(bool, kDLBool, 8, "?", "") \
    X(int1, kDLInt, 1, NULL, "") \
    X(int2, kDLInt, 2, NULL, "") \
    X(int4, kDLInt, 4, NULL, "") \
    X(int8, kDLInt, 8, "b", "") \
    X(int16, kDLInt, 16, "h", "") \
    X(int32, kDLInt, 32, "i", "l") \
    X(int64, kDLInt, 64, "l", "qn") \
    X(uint1, kDLUInt, 1, NULL, "") \
    X(uint2, kDLUInt, 2, NULL, "") \
    X(uint4, kDLUInt, 4, NULL, "") \
    X(uint8, kDLUInt, 8, "B", "") \
    X(uint16, kDLUInt, 16, "H", "") \
    X(uint32, kDLUInt, 32, "I", "L") \
    X(uint64, kDLUInt, 64, "L", "QN") \
    X(float16, kDLFloat, 16, "e", "") \
    X(float32, kDLFloat, 32, "f", "") \
    X(float64, kDLFloat, 64, "d", "") \
    X(bfloat16, kDLBfloat, 16, NULL, "") \
    X(complex32, kDLComplex, 32, NULL, "") \
    X(complex64, kDLComplex, 64, "Zf", "") \
    X(complex128, kDLComplex, 128, "Zd", "") \
    X(float8_e3m4, kDLFloat8_e3m4, 8, NULL, "") \
    X(float8_e4m3, kDLFloat8_e4m3, 8, NULL, "") \
    X(float8_e4m3b11fnuz, kDLFloat8_e4m3b11fnuz, 8, NULL, "") \
    X(float8_e4m3fn, kDLFloat8_e4m3fn, 8, NULL, "") \
    X(float8_e4m3fnuz, kDLFloat8_e4m3fnuz, 8, NULL, "") \
    X(float8_e5m2, kDLFloat8_e5m2, 8, NULL, "") \
    X(float8_e5m2fnuz, kDLFloat8_e5m2fnuz, 8, NULL, "") \
    X(float8_e8m0fnu, kDLFloat8_e8m0fnu, 8, NULL, "") \
    X(float6_e2m3fn, kDLFloat6_e2m3fn, 6, NULL, "") \
    X(float6_e3m2fn, kDLFloat6_e3m2fn, 6, NULL, "") \
    X(float4_e2m1fn, kDLFloat4_e2m1fn, 4, NULL, "")

/* The row of int64 has NumPy's letter, which is that of long where long has 64 bits. */
_Static_assert(sizeof(long) == sizeof(int64_t), "every target is LP64");

#define DTYPE_AS_ROW(name, code, bits, format, aliases) {#name, code, bits, format, aliases},
const dtype_entry dtype_table[] = {DTYPE_LIST(DTYPE_AS_ROW)};
#undef DTYPE_AS_ROW
const int dtype_table_count = sizeof dtype_table / sizeof dtype_table[0];

/* The row of a code and its bits, counted from 1: each import asks. */
#define MOST_BITS 128
#define DTYPE_AS_ENUM(name, code, bits, format, aliases) ROW_##name,
enum { ROW_NONE, DTYPE_LIST(DTYPE_AS_ENUM) };
#undef DTYPE_AS_ENUM
#define DTYPE_AS_PLACE(name, code, bits, format, aliases) [code][bits] = ROW_##name,
static const uint8_t rows[][MOST_BITS + 1] = {DTYPE_LIST(DTYPE_AS_PLACE)};
#undef DTYPE_AS_PLACE
#define CODES (sizeof rows / sizeof rows[0])

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

dtype_text
dtype_name(DLDataType dtype)
{
    dtype_text out;
    const dtype_entry *entry = dtype_find(dtype);
    const char *name = entry == NULL ? "unknown" : entry->name;
    if (dtype.lanes == 1) {
        (void)snprintf(out.text, sizeof out, "%s", name);
    }
    else {
        (void)snprintf(out.text, sizeof out, "%sx%u", name, (unsigned)dtype.lanes);
    }
    return out;
}

/* ---- sizes ---- */

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
    return entry == NULL || dtype.lanes != 1 ? NULL : entry->format;
}

/* `kind`: a format without its byte order. */
static bool
has_format(const dtype_entry *entry, const char *kind)
{
    if (entry->format == NULL || kind[0] == '\0') {
        return false;
    }
    return strcmp(kind, entry->format) == 0 ||
           (kind[1] == '\0' && strchr(entry->aliases, kind[0]) != NULL);
}

bool
dtype_from_buffer_format(const char *format, int64_t itemsize, DLDataType *out)
{
    const char *kind = format == NULL ? "B" : format;
    bool is_swapped = kind[0] == '>' || kind[0] == '!';
    if (kind[0] != '\0' && strchr("@=<>!", kind[0]) != NULL) {
        kind++;
    }
    if (is_swapped && itemsize > 1) {
        return false;
    }
    for (int i = 0; i < dtype_table_count; i++) {
        const dtype_entry *entry = &dtype_table[i];
        if (entry->bits / 8 == itemsize && has_format(entry, kind)) {
            *out = (DLDataType){entry->code, entry->bits, 1};
            return true;
        }
    }
    return false;
}
