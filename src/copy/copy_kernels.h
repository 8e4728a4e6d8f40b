/* copy_kernels.h: the inner loops of a copy: two axes of runs at a time.
 *
 * Owns:    nothing.
 * Threads: pure functions over the caller's memory.
 * Overlap: none is allowed here; copy.c sees to that.
 */
#ifndef MD_COPY_KERNELS_H
#define MD_COPY_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy/copy_plan.h"

typedef struct copy_block {
    int64_t run;     /* bytes */
    copy_axis outer; /* extent 1 where the copy has fewer axes */
    copy_axis inner;
    /* for the turn kernel: goes on where `inner` ends in dst; else extent 1 */
    copy_axis band;
    int64_t total_nbytes; /* of the whole copy, of which this may be a small part */
} copy_block;

/* Copy block->outer.extent x block->inner.extent runs from `src` to `dst`. */
typedef void (*copy_kernel)(const copy_block *block, char *dst, const char *src);

/* Copy `run` bytes that lie side by side; source and destination do not overlap. */
void copy_one_run(char *to, const char *from, int64_t run);

/* Each returns the kernel it has for a block of this form, or NULL. */
copy_kernel copy_fill_kernel(const copy_block *block); /* one item over each row of dst */
/* 2 to 4 channels to planes, or back */
copy_kernel copy_planes_kernel(const copy_block *block);
/* outer contiguous in src, inner in dst */
copy_kernel copy_turn_kernel(const copy_block *block);
copy_kernel copy_runs_kernel(const copy_block *block); /* any; never NULL */

#endif /* MD_COPY_KERNELS_H */
