/* texture_mipmaps.c: a texture's smaller levels, each of the one before; see texture.h.
 *
 * A pixel is the mean of those that it covers, each by how much of it: two by two of sides that are even, and three
 * along one that is odd.  Colours of sRGB are averaged as light.  Apple only says that GPUs may differ here.
 * SPEC Metal, MTLBlitCommandEncoder generateMipmapsForTexture:
 */
#include "softmetal/kernels/texture.h"

/* The pixels along one side of the level before. */
typedef struct covered {
    soft_u32 first, count;
    float weight[3];
} covered;

static covered
find_covered(soft_u32 at, soft_u32 before)
{
    /* in parts of which a pixel of the level before has `side`, and one of this level `before` */
    soft_u64 side = texture_side(before, 1), begin = (soft_u64)at * before,
             end = begin + before;
    covered found = {.first = (soft_u32)(begin / side)};
    for (soft_u64 low = begin; low < end; found.count++) {
        soft_u64 next = (low / side + 1) * side;
        soft_u64 high = next < end ? next : end;
        found.weight[found.count] = (float)(high - low) / (float)before;
        low = high;
    }
    return found;
}

static soft_pixel
mean_of(const soft_texture *texture, covered x, covered y, covered z, soft_u32 level)
{
    soft_floats sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (soft_u32 i = 0; i < x.count * y.count * z.count; i++) {
        soft_u32 along_x = i % x.count, along_y = i / x.count % y.count;
        soft_u32 along_z = i / x.count / y.count;
        soft_pixel pixel = soft_texture_read(texture, x.first + along_x, y.first + along_y,
                                             z.first + along_z, level);
        sum += x.weight[along_x] * y.weight[along_y] * z.weight[along_z] * (soft_floats)pixel;
    }
    return (soft_pixel)sum;
}

void
soft_texture_generate(const soft_texture *texture)
{
    bool has_slices = texture->slices > 1;
    for (soft_u32 level = 1; level < texture->levels; level++) {
        soft_u32 wide = texture_side(texture->width, level - 1);
        soft_u32 high = texture_side(texture->height, level - 1);
        soft_u32 deep = texture_side(texture->depth, level - 1);
        soft_u32 width = texture_side(wide, 1), height = texture_side(high, 1);
        soft_u32 images = has_slices ? texture->slices : texture_side(deep, 1);
        for (soft_u64 i = 0; i < (soft_u64)width * height * images; i++) {
            soft_u32 x = (soft_u32)(i % width), y = (soft_u32)(i / width % height);
            soft_u32 z = (soft_u32)(i / width / height);
            covered along_z = has_slices ? (covered){z, 1, {1.0f}} : find_covered(z, deep);
            soft_pixel mean = mean_of(texture, find_covered(x, wide), find_covered(y, high),
                                      along_z, level - 1);
            soft_texture_write(texture, mean, x, y, z, level);
        }
    }
}
