/* pixels.h: textures, and which of them and which samplers a dispatch has.
 *
 * Owns:    a texture its soft_texture, whose address a kernel has, and a reference to the bytes;
 *          what a dispatch is given a reference to each texture.
 * Calls:   soft_storage.h.
 * Threads: a texture never changes, and is counted by any thread; the rest as program.h says.
 */
#ifndef SOFT_PIXELS_H
#define SOFT_PIXELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arithmetic/pixel_format.h"
#include "softmetal/gpu/soft_storage.h"
#include "softmetal/shim/softmetal_kernel.h"

typedef struct soft_pixels {
    soft_texture as; /* what a kernel has the address of */
    const pixel_format *format;
    soft_storage *storage; /* owned (+1) */
    unsigned usage;        /* MTLTextureUsage */
    long references;
} soft_pixels;

/* Where each level lies, of a texture whose extents are known: as.level and as.nbytes.  A row's length
 * is a multiple of `alignment`. */
void soft_texture_lay_out(soft_texture *as, size_t pixel_nbytes, size_t alignment);

/* Owned (+1), or NULL: no memory.  `as` is laid out; its bytes begin at `offset` of `storage`. */
soft_pixels *soft_pixels_new(const soft_texture *as, soft_storage *storage, size_t offset,
                             unsigned usage);
soft_pixels *soft_pixels_retain(soft_pixels *pixels);
void soft_pixels_release(soft_pixels *pixels); /* NULL is allowed */

/* The first byte of a pixel in the storage; `slice` is z or the slice. */
size_t soft_pixels_offset(const soft_pixels *pixels, size_t level, size_t x, size_t y,
                          size_t slice);

/* ---- what a dispatch has ---- */

typedef struct soft_texture_use {
    soft_pixels *pixels; /* owned (+1) */
    unsigned index;
    bool is_written;
} soft_texture_use;

typedef struct soft_textures {
    soft_texture_use *uses; /* owned */
    size_t count, capacity;
    soft_u64 *samplers;      /* owned; SOFT_MOST_SAMPLERS; NULL: there is none */
    soft_u32 which_samplers; /* bit i: one is at index i */
} soft_textures;

/* Each is false where there is no memory.  NULL: nothing is at the index any more. */
bool soft_textures_set(soft_textures *textures, unsigned index, soft_pixels *pixels);
bool soft_textures_set_sampler(soft_textures *textures, unsigned index,
                               const soft_u64 *sampler);
soft_texture_use *soft_textures_at(const soft_textures *textures,
                                   unsigned index); /* NULL: nothing */
/* Make a copy's lists its own; false: it has none. */
bool soft_textures_split(soft_textures *copy);
void soft_textures_clear(soft_textures *textures);

/* As soft_launch has them; `list` has SOFT_MOST_TEXTURES entries, all NULL. */
void soft_textures_list(const soft_textures *textures, const soft_texture **list);

#endif /* SOFT_PIXELS_H */
