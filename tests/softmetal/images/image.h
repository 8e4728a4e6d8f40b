/* image.h: what a kernel in C needs to be an image; clang and gcc compile it. */
#ifndef IMAGE_H
#define IMAGE_H

#include "softmetal/shim/softmetal_kernel.h"

extern __attribute__((visibility("default"))) soft_image softmetal_image;

#define RUNTIME softmetal_image.runtime
#define SITE(n) \
    ((const void \
          *)(__UINTPTR_TYPE__)(n)) /* a call's place in the code: sites go on in this order */
#define BARRIER(n) RUNTIME->threadgroup_barrier(2, SITE(n))

#define IMAGE(has_syncs_, run_thread_, run_rows_) \
    soft_image softmetal_image = {.abi = SOFT_KERNEL_ABI, \
                                  .has_syncs = has_syncs_, \
                                  .run_thread = run_thread_, \
                                  .run_rows = run_rows_}

/* Count in the grid. */
static inline soft_u64
place_in_grid(const soft_thread *thread)
{
    const soft_u32 *at = thread->position_in_grid, *grid = thread->launch->grid;
    return at[0] + (soft_u64)grid[0] * (at[1] + (soft_u64)grid[1] * at[2]);
}

#endif /* IMAGE_H */
