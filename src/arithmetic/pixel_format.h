/* pixel_format.h: the pixel formats that textures here have, as a table.
 *
 * Owns:    the table.
 * Threads: pure functions over constant data.
 * Not in it: formats whose channels are no whole bytes, compressed ones, stencils: no Array has such items.
 * Source:  SPEC MTLPixelFormat.h; Metal Feature Set Tables, "Texture capabilities by pixel format".
 */
#ifndef MD_PIXEL_FORMAT_H
#define MD_PIXEL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SPEC MTLTexture.h MTLTextureType; those of several samples are not here */
enum {
    TEXTURE_1D,
    TEXTURE_1D_ARRAY,
    TEXTURE_2D,
    TEXTURE_2D_ARRAY,
    TEXTURE_CUBE = 5,
    TEXTURE_CUBE_ARRAY,
    TEXTURE_3D,
    TEXTURE_BUFFER = 9,
};

/* The most that Apple's GPUs in Macs take.  Source: Metal Feature Set Tables, "GPU implementation limits". */
enum {
    TEXTURE_MOST_PIXELS = 16384,
    TEXTURE_MOST_DEEP = 2048,       /* of a 3D texture along each axis, and slices */
    TEXTURE_MOST_IN_LINE = 1 << 28, /* of a texture buffer */
};

/* What a channel's bits are; a kernel sees the first five as floating-point numbers. */
typedef enum {
    PIXEL_UNORM, /* 0 to 1 */
    PIXEL_SRGB,  /* as UNORM, and red, green and blue along sRGB's curve */
    PIXEL_SNORM, /* -1 to 1 */
    PIXEL_FLOAT,
    PIXEL_DEPTH, /* of floats, one channel: sampled by depth2d and its kin */
    PIXEL_UINT,
    PIXEL_SINT,
} pixel_kind;

typedef struct pixel_format {
    const char *name; /* as Swift spells MTLPixelFormat: "rgba8Unorm" */
    uint16_t number;  /* MTLPixelFormat */
    uint8_t kind;     /* pixel_kind */
    uint8_t channels; /* 1, 2 or 4 */
    uint8_t bits;     /* of a channel: 8, 16 or 32 */
    bool is_bgra;     /* blue lies first */
} pixel_format;

extern const pixel_format pixel_format_table[];
extern const size_t pixel_format_count;

/* NULL: no such format here. */
const pixel_format *pixel_format_of_number(unsigned number);
const pixel_format *pixel_format_named(const char *name);

/* May a kernel read and write such a texture at once?  SPEC MTLReadWriteTextureTier2 */
bool pixel_format_is_read_write(const pixel_format *format);

/* A kernel sees integers, which are not filtered. */
static inline bool
pixel_format_is_integer(const pixel_format *format)
{
    return format->kind == PIXEL_UINT || format->kind == PIXEL_SINT;
}

/* A GPU filters it and renders to it as a colour, and so makes smaller levels of it. */
static inline bool
pixel_format_is_generated(const pixel_format *format)
{
    return format->kind < PIXEL_DEPTH;
}

/* Its numbers are an Array's items themselves. */
static inline bool
pixel_format_is_plain(const pixel_format *format)
{
    return format->kind == PIXEL_FLOAT || pixel_format_is_integer(format);
}

/* Two numbers of 32 bits, which atomics take as one of 64. */
static inline bool
pixel_format_is_of_64_bits(const pixel_format *format)
{
    return format->kind == PIXEL_UINT && format->bits == 32 && format->channels == 2;
}

static inline size_t
pixel_format_nbytes(const pixel_format *format)
{
    return (size_t)format->channels * format->bits / 8;
}

/* A side of a level that there is: half of the one before, and at least 1. */
static inline uint32_t
texture_side(uint32_t side, uint32_t level)
{
    return side >> level == 0 ? 1 : side >> level;
}

/* The last one is one pixel. */
static inline uint32_t
texture_most_levels(uint32_t width, uint32_t height, uint32_t depth)
{
    return width + height + depth == 0 ? 0
                                       : 32 - (uint32_t)__builtin_clz(width | height | depth);
}

#endif /* MD_PIXEL_FORMAT_H */
