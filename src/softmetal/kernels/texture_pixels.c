/* texture_pixels.c: where a pixel lies, and its bytes as four channels; see texture.h.
 *
 * A channel is 32 bits: a float of the formats that a kernel sees as floats, else an integer.
 * SPEC Metal Shading Language Specification 3.2, 8.7.1 to 8.7.4: a normalised integer c of n bits is c / (2^n - 1), with
 * a sign c / (2^(n-1) - 1) and at least -1; it is written as the nearest one, of two the even one, NaN as 0.  Integers
 * are written as the nearest that the channel has.
 */
#include "softmetal/kernels/texture.h"

#include <math.h>
#include <string.h>

/* ---- half ---- */

static float
float_of_half(soft_u32 half)
{
    soft_u32 sign = (half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) { /* infinity, and what is no number */
        return soft_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    }
    /* The exponent is 112 too small as a float's; that also makes the smallest numbers right. */
    return soft_as_float(sign | soft_as_bits(soft_as_float(rest << 13) * 0x1p112f));
}

/* To the nearest, of two the even one. */
static soft_u32
half_of_float(float value)
{
    soft_u32 bits = soft_as_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        return sign | 0x7e00;
    }
    if (rest >= 0x477ff000) { /* rounds past 65504 */
        return sign | 0x7c00;
    }
    if (rest < 0x38800000) { /* below the normal numbers: in steps of 2^-24 */
        return sign | (soft_u32)nearbyintf(soft_as_float(rest) * 0x1p24f);
    }
    return sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

/* ---- sRGB's curve ---- */

static float
from_srgb(float c)
{
    return c <= 0.04045f ? c / 12.92f : powf((c + 0.055f) / 1.055f, 2.4f);
}

static float
to_srgb(float c)
{
    c = c > 0.0f ? fminf(c, 1.0f) : 0.0f; /* NaN is 0 */
    return c < 0.0031308f ? 12.92f * c : 1.055f * powf(c, 1.0f / 2.4f) - 0.055f;
}

/* ---- a channel ---- */

static soft_u32
load(const soft_u8 *from, unsigned nbytes)
{
    soft_u32 value = 0;
    memcpy(&value, from, nbytes); /* the lowest byte first, here and in a texture */
    return value;
}

static int32_t
with_sign(soft_u32 value, unsigned bits)
{
    return (int32_t)(value << (32 - bits)) >> (32 - bits);
}

static float
greatest(unsigned bits)
{
    return (float)((1ull << bits) - 1);
}

static soft_u32
decode_channel(const pixel_format *format, soft_u32 stored, bool is_alpha)
{
    unsigned bits = format->bits;
    switch ((pixel_kind)format->kind) {
    case PIXEL_SRGB:
        if (!is_alpha) {
            return soft_as_bits(from_srgb((float)stored / greatest(bits)));
        }
        return soft_as_bits((float)stored / greatest(bits));
    case PIXEL_UNORM: return soft_as_bits((float)stored / greatest(bits));
    case PIXEL_SNORM:
        return soft_as_bits(fmaxf((float)with_sign(stored, bits) / greatest(bits - 1), -1.0f));
    case PIXEL_FLOAT: return bits == 16 ? soft_as_bits(float_of_half(stored)) : stored;
    case PIXEL_DEPTH: return bits == 16 ? soft_as_bits((float)stored / greatest(bits)) : stored;
    case PIXEL_SINT: return (soft_u32)with_sign(stored, bits);
    case PIXEL_UINT: break;
    }
    return stored;
}

static soft_u32
encode_unorm(float value, unsigned bits)
{
    value = value > 0.0f ? fminf(value, 1.0f) : 0.0f;
    return (soft_u32)nearbyintf(value * greatest(bits));
}

static soft_u32
encode_channel(const pixel_format *format, soft_u32 given, bool is_alpha)
{
    unsigned bits = format->bits;
    float value = soft_as_float(given);
    switch ((pixel_kind)format->kind) {
    case PIXEL_SRGB: return encode_unorm(is_alpha ? value : to_srgb(value), bits);
    case PIXEL_UNORM: return encode_unorm(value, bits);
    case PIXEL_SNORM:
        value = isnan(value) ? 0.0f : fmaxf(fminf(value, 1.0f), -1.0f);
        return (soft_u32)(int32_t)nearbyintf(value * greatest(bits - 1));
    case PIXEL_FLOAT: return bits == 16 ? half_of_float(value) : given;
    case PIXEL_DEPTH: return bits == 16 ? encode_unorm(value, bits) : given;
    case PIXEL_SINT:
        if (bits < 32) {
            int32_t most = (1 << (bits - 1)) - 1, number = (int32_t)given;
            return (soft_u32)(number > most ? most : number < -most - 1 ? -most - 1 : number);
        }
        return given;
    case PIXEL_UINT: return bits < 32 && given >> bits != 0 ? (1u << bits) - 1 : given;
    }
    return given;
}

/* ---- a pixel ---- */

/* Which channel lies at a place. */
static unsigned
channel_at(const pixel_format *format, unsigned place)
{
    return format->is_bgra && place < 3 ? 2 - place : place;
}

soft_pixel
soft_texture_complete(const pixel_format *format, soft_pixel pixel)
{
    for (unsigned i = format->channels; i < 4; i++) {
        pixel[i] = i < 3 ? 0 : soft_texture_one(format);
    }
    return pixel;
}

soft_pixel
soft_texture_decode(const pixel_format *format, const soft_u8 *bytes)
{
    soft_pixel pixel = {0, 0, 0, 0};
    if (format->bits == 32 && format->channels == 4) {
        memcpy(&pixel, bytes, sizeof pixel);
        return pixel;
    }
    unsigned nbytes = format->bits / 8;
    for (unsigned place = 0; place < format->channels; place++) {
        unsigned channel = channel_at(format, place);
        soft_u32 stored = load(bytes + place * nbytes, nbytes);
        pixel[channel] = decode_channel(format, stored, channel == 3);
    }
    return soft_texture_complete(format, pixel);
}

static void
encode(const pixel_format *format, soft_pixel pixel, soft_u8 *bytes)
{
    if (format->bits == 32 && format->channels == 4) {
        memcpy(bytes, &pixel, sizeof pixel);
        return;
    }
    unsigned nbytes = format->bits / 8;
    for (unsigned place = 0; place < format->channels; place++) {
        unsigned channel = channel_at(format, place);
        soft_u32 stored = encode_channel(format, pixel[channel], channel == 3);
        memcpy(bytes + place * nbytes, &stored, nbytes);
    }
}

/* Is the pixel there, and where? */
static inline soft_u8 *
find(const soft_texture *texture, const pixel_format *format, soft_u32 x, soft_u32 y,
     soft_u32 z, soft_u32 level)
{
    soft_u32 width = texture->width, height = texture->height, depth = texture->depth;
    if (level != 0) {
        if (level >= texture->levels) {
            return NULL;
        }
        width = texture_side(width, level);
        height = texture_side(height, level);
        depth = texture_side(depth, level);
    }
    if (x >= width || y >= height || z >= (texture->slices > 1 ? texture->slices : depth)) {
        return NULL;
    }
    return texture->pixels + texture->level[level].offset + x * pixel_format_nbytes(format) +
           y * texture->level[level].row_nbytes + z * texture->level[level].image_nbytes;
}

soft_u8 *
soft_texture_pixel(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                   soft_u32 level)
{
    const pixel_format *format = soft_texture_format(texture);
    return format == NULL ? NULL : find(texture, format, x, y, z, level);
}

soft_pixel
soft_texture_read(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                  soft_u32 level)
{
    const pixel_format *format = soft_texture_format(texture);
    const soft_u8 *bytes = format == NULL ? NULL : find(texture, format, x, y, z, level);
    soft_pixel outside = {0, 0, 0, 0};
    if (bytes != NULL) {
        return soft_texture_decode(format, bytes);
    }
    return format == NULL ? outside : soft_texture_complete(format, outside);
}

void
soft_texture_write(const soft_texture *texture, soft_pixel pixel, soft_u32 x, soft_u32 y,
                   soft_u32 z, soft_u32 level)
{
    const pixel_format *format = soft_texture_format(texture);
    soft_u8 *bytes = format == NULL ? NULL : find(texture, format, x, y, z, level);
    if (bytes != NULL) {
        encode(format, pixel, bytes);
    }
}

void *
soft_texture_place(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                   soft_u32 nbytes)
{
    soft_u8 *bytes = soft_texture_pixel(texture, x, y, z, 0);
    bool is_fitting = bytes != NULL &&
                      pixel_format_nbytes(pixel_format_of_number(texture->format)) == nbytes &&
                      (uintptr_t)bytes % nbytes == 0;
    return is_fitting ? bytes : NULL;
}
