/* data_type.c: see data_type.h. */
#include "softmetal/data_type.h"

#include <string.h>

/* A scalar; its vectors of 2, 3 and 4 follow it in MTLDataType, that of 3 as large as that of 4. */
static const struct scalar {
    const char *name;
    unsigned type;
    size_t nbytes;
} scalars[] = {
    {"float", 3, 4},  {"half", 16, 2},   {"int", 29, 4},   {"uint", 33, 4},
    {"short", 37, 2}, {"ushort", 41, 2}, {"char", 45, 1},  {"uchar", 49, 1},
    {"bool", 53, 1},  {"long", 81, 8},   {"ulong", 85, 8}, {"bfloat", 121, 2},
};
#define SCALAR_COUNT (sizeof scalars / sizeof scalars[0])

unsigned
soft_data_type_named(const char *name)
{
    for (size_t i = 0; i < SCALAR_COUNT; i++) {
        size_t length = strlen(scalars[i].name);
        const char *width = name + length;
        if (strncmp(name, scalars[i].name, length) != 0) {
            continue;
        }
        if (*width == '\0') {
            return scalars[i].type;
        }
        if (*width >= '2' && *width <= '4' && width[1] == '\0') {
            return scalars[i].type + (unsigned)(*width - '1');
        }
    }
    return 0;
}

size_t
soft_data_type_nbytes(unsigned type)
{
    static const size_t items[] = {1, 2, 4, 4};
    for (size_t i = 0; i < SCALAR_COUNT; i++) {
        if (type >= scalars[i].type && type < scalars[i].type + 4) {
            return scalars[i].nbytes * items[type - scalars[i].type];
        }
    }
    return 0;
}
