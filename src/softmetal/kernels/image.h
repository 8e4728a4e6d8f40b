/* image.h: a kernel that was compiled into a shared library, loaded, and run over a grid.
 *
 * Owns:    the library; a count of references.  The caller of a launch keeps the image, the launch
 *          and all that is bound until the end.
 * Calls:   the loader; threadgroup.h for what the kernel may call.
 * Threads: any; several launches may run at the same time.
 */
#ifndef SOFT_IMAGE_H
#define SOFT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/shim/softmetal_kernel.h"

/* Read only, but for what is atomic. */
typedef struct soft_loaded_image {
    int references;    /* atomic */
    void *library;     /* owned */
    soft_image *image; /* what the kernel says of itself; borrowed from the library */
    const char
        *base;     /* where the loader has put it: addresses of its code, less this, are ... */
    size_t nbytes; /* ... offsets in the file, up to the end of its last segment */
    uint64_t
        group_ns; /* of one of its threadgroups, as the last launch found; 0: not known; atomic */
    int has_counted;  /* a launch of it was counted for all (counts.h); atomic */
    const char *name; /* of the kernel; behind the path */
    char path[];
} soft_loaded_image;

/* Load the library at `path`, the image of the kernel `name`: a file that only this user can write: loading runs its code.
 * Owned (+1); NULL with a sentence in `error` where it is no kernel's image, or in a forked
 * child. */
soft_loaded_image *soft_image_open(const char *path, const char *name, char *error,
                                   size_t error_nbytes);
soft_loaded_image *soft_image_retain(soft_loaded_image *image); /* gives it back */
void soft_image_release(soft_loaded_image *image);              /* NULL is allowed */

/* Run every thread of the grid, and return when all are done: on the calling thread, and on
 * SOFTMETAL_KERNEL_THREADS - 1 others if it takes more than a few microseconds.
 *
 *     grid     threads along x, y, z; any may be 0, and then nothing runs
 *     group    at most SOFT_MOST_THREADS in all, none 0
 *     groups   grid / group, rounded up: the threadgroups at the far edges may be smaller
 *
 * False with a text in `error`: the kernel was stopped (by the checker, or because its
 * threadgroup memory passes SOFT_MOST_THREADGROUP_NBYTES), there is no memory, or this is a
 * forked child.  What it has written by then stays written. */
bool soft_image_run(soft_loaded_image *image, const soft_launch *launch, char *error,
                    size_t error_nbytes);

#endif /* SOFT_IMAGE_H */
