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
    for (soft_u32 level = 1; level < texture->levels; level++) {
        soft_u32 width = texture_side(texture->width, level - 1);
        soft_u32 height = texture_side(texture->height, level - 1);
        soft_u32 depth = texture_side(texture->depth, level - 1);
        soft_u32 images = texture->slices > 1 ? texture->slices : texture_side(depth, 1);
        for (soft_u32 z = 0; z < images; z++) {
            covered along_z = {z, 1, {1.0f}};
            if (texture->slices == 1) {
                along_z = find_covered(z, depth);
            }
            for (soft_u32 y = 0; y < texture_side(height, 1); y++) {
                covered along_y = find_covered(y, height);
                for (soft_u32 x = 0; x < texture_side(width, 1); x++) {
                    soft_pixel mean =
                        mean_of(texture, find_covered(x, width), along_y, along_z, level - 1);
                    soft_texture_write(texture, mean, x, y, z, level);
                }
            }
        }
    }
}
