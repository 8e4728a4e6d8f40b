/* metal_type.c: see metal_type.h. */
#include "kernels/metal_type.h"

#include <stdio.h>

/* MTLDataType counts a scalar and its vectors of 2, 3 and 4 lanes; `matrix` is that of two
 * columns of two, the first of nine. */
static const struct {
    const char *name;
    unsigned first, matrix;
    uint8_t code, bits;
} scalars[] = {
    {"float", 3, 7, kDLFloat, 32}, {"half", 16, 20, kDLFloat, 16},
    {"int", 29, 0, kDLInt, 32},    {"uint", 33, 0, kDLUInt, 32},
    {"short", 37, 0, kDLInt, 16},  {"ushort", 41, 0, kDLUInt, 16},
    {"char", 45, 0, kDLInt, 8},    {"uchar", 49, 0, kDLUInt, 8},
    {"bool", 53, 0, kDLBool, 8},   {"long", 81, 0, kDLInt, 64},
    {"ulong", 85, 0, kDLUInt, 64}, {"bfloat", 121, 0, kDLBfloat, 16},
};
#define SCALARS (sizeof scalars / sizeof scalars[0])

enum { DATA_TYPE_STRUCT = 1, DATA_TYPE_ARRAY = 2, MATRICES = 9 };

metal_type
metal_type_of(unsigned data_type)
{
    metal_type type = {.is_struct =
                           data_type == DATA_TYPE_STRUCT || data_type == DATA_TYPE_ARRAY};
    for (size_t i = 0; i < SCALARS; i++) {
        unsigned lanes = data_type - scalars[i].first + 1;
        unsigned shape = data_type - scalars[i].matrix;
        bool is_matrix = scalars[i].matrix != 0 && shape < MATRICES;
        if (!is_matrix && (lanes < 1 || lanes > 4)) {
            continue;
        }
        type.scalar_name = scalars[i].name;
        type.scalar = (DLDataType){scalars[i].code, scalars[i].bits, 1};
        type.columns = is_matrix ? (int)(shape / 3 + 2) : 0;
        type.lanes = is_matrix ? type.columns * (int)(shape % 3 + 2) : (int)lanes;
        break;
    }
    return type;
}

void
metal_type_write_name(const metal_type *type, char out[METAL_TYPE_NAME_MAX])
{
    const char *name = type->scalar_name;
    if (type->columns > 0) {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s%dx%d", name, type->columns,
                       type->lanes / type->columns);
    }
    else if (type->lanes > 1) {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s%d", name, type->lanes);
    }
    else {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s",
                       name != NULL      ? name
                       : type->is_struct ? "struct"
                                         : "");
    }
}

const char *
metal_type_name_for(DLDataType dtype)
{
    for (size_t i = 0; i < SCALARS; i++) {
        if (scalars[i].code == dtype.code && scalars[i].bits == dtype.bits) {
            return scalars[i].name;
        }
    }
    return dtype.code != kDLComplex ? NULL
           : dtype.bits == 64       ? "float2"
           : dtype.bits == 32       ? "half2"
                                    : NULL;
}

bool
metal_type_takes(const metal_type *type, DLDataType dtype)
{
    DLDataType scalar = type->scalar;
    if (type->lanes == 0 || (scalar.code == dtype.code && scalar.bits == dtype.bits)) {
        return true;
    }
    if (dtype.code == kDLComplex && metal_type_name_for(dtype) != NULL) {
        return scalar.code == kDLFloat && scalar.bits * 2 == dtype.bits && type->lanes == 2;
    }
    return scalar.code == kDLUInt && scalar.bits == 8 && metal_type_name_for(dtype) == NULL;
}
