/* pixel_format.c: see pixel_format.h. */
#include "arithmetic/pixel_format.h"

#include <string.h>

#define ROWS(X) \
    X(r8Unorm, 10, UNORM, 1, 8) \
    X(r8Unorm_srgb, 11, SRGB, 1, 8) \
    X(r8Snorm, 12, SNORM, 1, 8) \
    X(r8Uint, 13, UINT, 1, 8) \
    X(r8Sint, 14, SINT, 1, 8) \
    X(r16Unorm, 20, UNORM, 1, 16) \
    X(r16Snorm, 22, SNORM, 1, 16) \
    X(r16Uint, 23, UINT, 1, 16) \
    X(r16Sint, 24, SINT, 1, 16) \
    X(r16Float, 25, FLOAT, 1, 16) \
    X(rg8Unorm, 30, UNORM, 2, 8) \
    X(rg8Unorm_srgb, 31, SRGB, 2, 8) \
    X(rg8Snorm, 32, SNORM, 2, 8) \
    X(rg8Uint, 33, UINT, 2, 8) \
    X(rg8Sint, 34, SINT, 2, 8) \
    X(r32Uint, 53, UINT, 1, 32) \
    X(r32Sint, 54, SINT, 1, 32) \
    X(r32Float, 55, FLOAT, 1, 32) \
    X(rg16Unorm, 60, UNORM, 2, 16) \
    X(rg16Snorm, 62, SNORM, 2, 16) \
    X(rg16Uint, 63, UINT, 2, 16) \
    X(rg16Sint, 64, SINT, 2, 16) \
    X(rg16Float, 65, FLOAT, 2, 16) \
    X(rgba8Unorm, 70, UNORM, 4, 8) \
    X(rgba8Unorm_srgb, 71, SRGB, 4, 8) \
    X(rgba8Snorm, 72, SNORM, 4, 8) \
    X(rgba8Uint, 73, UINT, 4, 8) \
    X(rgba8Sint, 74, SINT, 4, 8) \
    X(bgra8Unorm, 80, UNORM, 4, 8) \
    X(bgra8Unorm_srgb, 81, SRGB, 4, 8) \
    X(rg32Uint, 103, UINT, 2, 32) \
    X(rg32Sint, 104, SINT, 2, 32) \
    X(rg32Float, 105, FLOAT, 2, 32) \
    X(rgba16Unorm, 110, UNORM, 4, 16) \
    X(rgba16Snorm, 112, SNORM, 4, 16) \
    X(rgba16Uint, 113, UINT, 4, 16) \
    X(rgba16Sint, 114, SINT, 4, 16) \
    X(rgba16Float, 115, FLOAT, 4, 16) \
    X(rgba32Uint, 123, UINT, 4, 32) \
    X(rgba32Sint, 124, SINT, 4, 32) \
    X(rgba32Float, 125, FLOAT, 4, 32) \
    X(depth16Unorm, 250, DEPTH, 1, 16) \
    X(depth32Float, 252, DEPTH, 1, 32)

#define AS_ROW(name, number, kind, channels, bits) \
    {#name, (number), PIXEL_##kind, (channels), (bits), (number) == 80 || (number) == 81},
const pixel_format pixel_format_table[] = {ROWS(AS_ROW)};
const size_t pixel_format_count = sizeof pixel_format_table / sizeof pixel_format_table[0];

/* A kernel asks at each pixel.  1 more than the row's place; 0: there is none. */
#define AS_PLACE(name, number, kind, channels, bits) PLACE_##name,
enum { NO_PLACE, ROWS(AS_PLACE) };
#define BY_NUMBER(name, number, kind, channels, bits) [number] = PLACE_##name,
static const unsigned char places[] = {ROWS(BY_NUMBER)};

const pixel_format *
pixel_format_of_number(unsigned number)
{
    unsigned place = number < sizeof places ? places[number] : NO_PLACE;
    return place == NO_PLACE ? NULL : &pixel_format_table[place - 1];
}

const pixel_format *
pixel_format_named(const char *name)
{
    for (size_t i = 0; i < pixel_format_count; i++) {
        if (strcmp(pixel_format_table[i].name, name) == 0) {
            return &pixel_format_table[i];
        }
    }
    return NULL;
}

bool
pixel_format_is_read_write(const pixel_format *format)
{
    bool is_8_unorm = format->kind == PIXEL_UNORM && format->bits == 8;
    return (is_8_unorm || pixel_format_is_plain(format)) && format->channels != 2 &&
           !format->is_bgra;
}
