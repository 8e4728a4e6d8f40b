/* copy_grid.h: a copy as one grid of a compute kernel: which kernel, how many calls, what it
 * is told.
 *
 * Owns:    the kernels.
 * Calls:   copy_plan.h for the shape of the work.  copy_kernel.h has the kernels.
 * Threads: pure functions.
 * Rule:    a kernel takes three arguments: destination, source, shape.  Offsets count from
 *          what is bound; the first two begin on a multiple of 16 bytes.
 */
#ifndef MD_COPY_GRID_H
#define MD_COPY_GRID_H

#include <stddef.h>

#include "copy/copy_plan.h"
#include "metal/devices.h"

#define COPY_KERNEL_COUNT 5

extern device_kernel copy_kernels[COPY_KERNEL_COUNT]; /* of units of 1, 2, 4, 8 and 16 bytes */

typedef struct copy_grid {
    size_t extents[3];   /* calls along x, y and z; each below 2^32 */
    size_t shape_nbytes; /* of argument 2 */
    uint64_t shape[176];
} copy_grid;

/* The kernel of the largest unit that a plan can be made of: an index of copy_kernels.
 * `dst_base` and `src_base`: what offset 0 of the arguments stands for. */
int copy_grid_kernel(const copy_plan *plan, const char *dst_base, const char *src_base);

/* False: no grid is large enough; copy_grid_halve, and try each half with the same kernel. */
bool copy_grid_make(const copy_plan *plan, int kernel, const char *dst_base,
                    const char *src_base, copy_grid *out);
void copy_grid_halve(const copy_plan *plan, int kernel, copy_plan *first, copy_plan *second);

#endif /* MD_COPY_GRID_H */
