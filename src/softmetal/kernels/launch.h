/* launch.h: runs a loaded kernel over a grid.
 *
 * Owns:    nothing; the caller keeps the image, the launch and all that is bound until the end.
 * Calls:   image.h, threadgroup.h.
 * Threads: any; several launches may run at the same time.
 */
#ifndef SOFT_LAUNCH_H
#define SOFT_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/kernels/image.h"

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

#endif /* SOFT_LAUNCH_H */
