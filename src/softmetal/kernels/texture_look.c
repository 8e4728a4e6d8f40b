/* texture_look.c: what a checked image asks before it touches pixels; see texture.h. */
#include "softmetal/checker/check.h"
#include "softmetal/fiber.h"
#include "softmetal/kernels/texture.h"

static soft_u32
nbytes_of(const soft_texture *texture)
{
    const pixel_format *format = soft_texture_format(texture);
    return format == NULL ? 0 : (soft_u32)pixel_format_nbytes(format);
}

SOFT_ON_FIBER soft_u32
soft_texture_look(const soft_texture *texture, soft_u32 x, soft_u32 y, soft_u32 z,
                  soft_u32 level, soft_u32 how, const void *site, void **place)
{
    const soft_u32 coordinates[4] = {x, y, z, level};
    soft_check_texture(texture, how, site);
    *place = NULL;
    if ((how & SOFT_ACCESS_FENCE) != 0) {
        return 0;
    }
    *place = soft_texture_pixel(texture, x, y, z, level);
    soft_check_pixel(texture, *place, coordinates, how, site);
    return *place == NULL ? 0 : nbytes_of(texture);
}

SOFT_ON_FIBER soft_u32
soft_texture_look_around(const soft_texture *texture, soft_u64 sampler, soft_floats at,
                         soft_floats level, soft_u32 slice, soft_u32 how, const void *site,
                         void *places[SOFT_MOST_TEXELS], soft_u32 *count)
{
    static const soft_u32 none[4] = {0};
    soft_texels found;
    soft_check_texture(texture, 0, site);
    soft_texture_find(texture, sampler, at, level, slice, how, &found);
    *count = 0;
    for (soft_u32 i = 0; i < found.count; i++) {
        if (found.each[i].pixel != NULL) { /* else it is the border */
            places[*count] = (void *)found.each[i].pixel;
            soft_check_pixel(texture, places[*count], none, 0, site);
            *count += 1;
        }
    }
    return nbytes_of(texture);
}
