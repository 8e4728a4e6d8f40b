/* copy_kernels.h: the inner loops of a copy: two axes of runs at a time.
 *
 * Owns:    nothing.
 * Threads: pure functions over the caller's memory.
 * Overlap: none is allowed here; copy.c sees to that.
 */
#ifndef MD_COPY_KERNELS_H
#define MD_COPY_KERNELS_H

#include <stdint.h>

#include "copy_plan.h"

typedef struct copy_block {
    int64_t run;     /* bytes */
    copy_axis outer; /* extent 1 where the copy has fewer axes */
    copy_axis inner;
} copy_block;

/* Copy block->outer.extent x block->inner.extent runs from `src` to `dst`. */
typedef void (*copy_kernel)(const copy_block *block, char *dst, const char *src);

copy_kernel copy_runs_kernel(int64_t run); /* runs of `run` bytes at any steps */

#endif /* MD_COPY_KERNELS_H */
