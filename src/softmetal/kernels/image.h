/* image.h: a kernel that was compiled into a shared library, loaded.
 *
 * Owns:    the library; a count of references.
 * Calls:   the loader; threadgroup.h for what the kernel may call.
 * Threads: any.
 */
#ifndef SOFT_IMAGE_H
#define SOFT_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "metal_dlpack/msl/include/softmetal_kernel.h"

typedef struct soft_loaded_image soft_loaded_image;

/* Load the library at `path`, a file that only this user can write: loading runs its code.
 * Owned (+1); NULL with a sentence in `error` where it is no kernel's image, or in a forked
 * child. */
soft_loaded_image *soft_image_open(const char *path, char *error, size_t error_nbytes);
soft_loaded_image *soft_image_retain(soft_loaded_image *image); /* gives it back */
void soft_image_release(soft_loaded_image *image);              /* NULL is allowed */

/* What the kernel says of itself; borrowed from the image. */
const soft_image *soft_image_facts(const soft_loaded_image *image);
/* Where the loader has put it: the addresses of its code, less the first, are offsets in the
 * file. */
typedef struct soft_image_place {
    const char *base;
    size_t nbytes; /* to the end of the last segment */
} soft_image_place;
soft_image_place soft_image_where(const soft_loaded_image *image);
/* Nanoseconds of one of its threadgroups, as the last launch found; 0: not known.  Atomic. */
uint64_t *soft_image_group_ns(soft_loaded_image *image);
const char *soft_image_path(const soft_loaded_image *image);

#endif /* SOFT_IMAGE_H */
