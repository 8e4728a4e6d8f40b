/* texture.h: textures as kernels see them: pixels, and samples of them.
 *
 *     texture_look.c     what a checked image asks before
 *       ▼
 *     texture_sample.c   which pixels a sample is made of, and how: filters, address modes, levels
 *       │                texture_cube.c: cubes
 *       ▼
 *     texture_pixels.c   where a pixel lies, and its bytes as four channels
 *       ▲
 *     texture_mipmaps.c  the smaller levels
 *
 * Owns:    nothing; textures are the launch's.
 * Calls:   arithmetic/pixel_format.h, checker/check.h.
 * Threads: any; a kernel's threads call on their stacks.
 * Source:  SPEC Metal Shading Language Specification 3.2, 6.12 Texture Functions, 8.7 Texture Addressing and
 *          Conversion Rules.
 */
#ifndef SOFT_TEXTURE_H
#define SOFT_TEXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "arithmetic/pixel_format.h"
#include "softmetal/shim/softmetal_kernel.h"

/* NULL: there is no texture, or no such format. */
static inline const pixel_format *
soft_texture_format(const soft_texture *texture)
{
    return texture == NULL ? NULL : pixel_format_of_number(texture->format);
}

/* ---- a channel: 32 bits, of a float where the kernel sees floats ---- */

static inline float
soft_as_float(soft_u32 bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline soft_u32
soft_as_bits(float value)
{
    soft_u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline soft_u32
soft_texture_one(const pixel_format *format)
{
    return pixel_format_is_integer(format) ? 1 : soft_as_bits(1.0f);
}

/* ---- texture_pixels.c ---- */

/* NULL: it lies outside, or there is no texture. */
soft_u8 *soft_texture_pixel(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                            soft_u32 level);
soft_pixel soft_texture_decode(const pixel_format *format, const soft_u8 *bytes);
/* What a format lacks is 0, of the fourth channel 1: complete channels beside the format's own. */
soft_pixel soft_texture_complete(const pixel_format *format, soft_pixel pixel);

/* As softmetal_kernel.h says of soft_runtime. */
soft_pixel soft_texture_read(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                             soft_u32 level);
void soft_texture_write(const soft_texture *texture, soft_pixel pixel, soft_u32 x, soft_u32 y,
                        soft_u32 z, soft_u32 level);
void *soft_texture_place(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                         soft_u32 nbytes);

/* ---- texture_look.c ---- */

soft_u32 soft_texture_look(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                           soft_u32 level, soft_u32 how, const void *site, void **place);
soft_u32 soft_texture_look_around(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                                  soft_floats level, soft_u32 slice, soft_u32 how,
                                  const void *site, void *places[SOFT_MOST_TEXELS],
                                  soft_u32 *count);

/* ---- texture_cube.c ---- */

/* The face that a direction meets, and where: `at` becomes parts of its sides. */
unsigned soft_cube_face(const float direction[3], float at[2]);
/* A pixel one past an edge of a face becomes the one there of the face beside it, which is returned. */
unsigned soft_cube_cross(unsigned face, int32_t side, int32_t at[2]);
/* How many pixels a step from a direction leads. */
float soft_cube_length(soft_u32 side, const float at[3], const float step[3]);

/* ---- texture_sample.c ---- */

/* The pixels that a sample is made of; `pixel` NULL: the border.  A gather's are all four, by x and then by y. */
typedef struct soft_texels {
    soft_u32 count;
    struct {
        const soft_u8 *pixel;
        float weight;
    } each[SOFT_MOST_TEXELS];
} soft_texels;

void soft_texture_find(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                       soft_floats level, soft_u32 slice, soft_u32 how, soft_texels *found);
soft_pixel soft_texture_sample(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                               soft_floats level, soft_u32 slice, soft_u32 how);
float soft_texture_level(const soft_texture *texture, soft_floats at, soft_floats along_x,
                         soft_floats along_y);

/* ---- texture_mipmaps.c ---- */

/* All levels but the first, of a format whose pixels are floats. */
void soft_texture_generate(const soft_texture *texture);

#endif /* SOFT_TEXTURE_H */
