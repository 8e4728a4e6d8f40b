/* pixels.c: see pixels.h. */
#include "softmetal/gpu/pixels.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/host.h"

void
soft_texture_lay_out(soft_texture *as, size_t pixel_nbytes, size_t alignment)
{
    as->nbytes = 0;
    for (soft_u32 level = 0; level < as->levels; level++) {
        soft_u64 row = (soft_u64)texture_side(as->width, level) * pixel_nbytes;
        row = (row + alignment - 1) / alignment * alignment;
        soft_u64 image = row * texture_side(as->height, level);
        as->level[level].offset = as->nbytes;
        as->level[level].row_nbytes = row;
        as->level[level].image_nbytes = image;
        as->nbytes += image * texture_side(as->depth, level) * as->slices;
    }
}

soft_pixels *
soft_pixels_new(const soft_texture *as, soft_storage *storage, size_t offset, unsigned usage)
{
    soft_pixels *pixels = malloc(sizeof *pixels);
    if (pixels == NULL) {
        return NULL;
    }
    *pixels = (soft_pixels){.as = *as,
                            .format = pixel_format_of_number(as->format),
                            .storage = soft_storage_retain(storage),
                            .usage = usage,
                            .references = 1};
    pixels->as.pixels = (soft_u8 *)storage->bytes + offset;
    return pixels;
}

soft_pixels *
soft_pixels_retain(soft_pixels *pixels)
{
    __atomic_add_fetch(&pixels->references, 1, __ATOMIC_RELAXED);
    return pixels;
}

void
soft_pixels_release(soft_pixels *pixels)
{
    if (pixels != NULL && __atomic_sub_fetch(&pixels->references, 1, __ATOMIC_ACQ_REL) == 0) {
        soft_storage_release(pixels->storage);
        free(pixels);
    }
}

size_t
soft_pixels_offset(const soft_pixels *pixels, size_t level, size_t x, size_t y, size_t slice)
{
    const soft_texture *as = &pixels->as;
    return (size_t)(as->pixels - (soft_u8 *)pixels->storage->bytes) +
           (size_t)as->level[level].offset + x * pixel_format_nbytes(pixels->format) +
           y * (size_t)as->level[level].row_nbytes +
           slice * (size_t)as->level[level].image_nbytes;
}

/* ---- what a dispatch has ---- */

soft_texture_use *
soft_textures_at(const soft_textures *textures, unsigned index)
{
    for (size_t i = 0; i < textures->count; i++) {
        if (textures->uses[i].index == index) {
            return &textures->uses[i];
        }
    }
    return NULL;
}

bool
soft_textures_set(soft_textures *textures, unsigned index, soft_pixels *pixels)
{
    soft_texture_use *use = soft_textures_at(textures, index);
    if (use != NULL) {
        soft_pixels_release(use->pixels);
        *use = textures->uses[--textures->count];
    }
    if (pixels == NULL) {
        return true;
    }
    if (!soft_grow((void **)&textures->uses, textures->count, &textures->capacity,
                   sizeof *textures->uses)) {
        return false;
    }
    textures->uses[textures->count++] =
        (soft_texture_use){.pixels = soft_pixels_retain(pixels), .index = index};
    return true;
}

bool
soft_textures_set_sampler(soft_textures *textures, unsigned index, const soft_u64 *sampler)
{
    textures->which_samplers &= ~(1u << index);
    if (sampler == NULL) {
        return true;
    }
    if (textures->samplers == NULL) {
        textures->samplers = calloc(SOFT_MOST_SAMPLERS, sizeof *textures->samplers);
    }
    if (textures->samplers == NULL) {
        return false;
    }
    textures->which_samplers |= 1u << index;
    textures->samplers[index] = *sampler;
    return true;
}

static void *
copy_of(const void *list, size_t nbytes)
{
    void *copy = list == NULL ? NULL : malloc(nbytes);
    return copy == NULL ? NULL : memcpy(copy, list, nbytes);
}

bool
soft_textures_split(soft_textures *copy)
{
    const soft_textures from = *copy;
    *copy = (soft_textures){.which_samplers = from.which_samplers};
    if (from.count > 0) {
        copy->uses = copy_of(from.uses, from.count * sizeof *from.uses);
        copy->count = copy->capacity = copy->uses == NULL ? 0 : from.count;
    }
    for (size_t i = 0; i < copy->count; i++) {
        (void)soft_pixels_retain(copy->uses[i].pixels);
    }
    copy->samplers = copy_of(from.samplers, SOFT_MOST_SAMPLERS * sizeof *from.samplers);
    return copy->count == from.count && (copy->samplers == NULL) == (from.samplers == NULL);
}

void
soft_textures_clear(soft_textures *textures)
{
    for (size_t i = 0; i < textures->count; i++) {
        soft_pixels_release(textures->uses[i].pixels);
    }
    free(textures->uses);
    free(textures->samplers);
    *textures = (soft_textures){0};
}

void
soft_textures_list(const soft_textures *textures, const soft_texture **list)
{
    for (size_t i = 0; i < textures->count; i++) {
        list[textures->uses[i].index] = &textures->uses[i].pixels->as;
    }
}
