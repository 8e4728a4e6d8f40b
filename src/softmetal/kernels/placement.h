/* placement.h: where a threadgroup lies in the grid, and a thread in both.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: any.
 */
#ifndef SOFT_PLACEMENT_H
#define SOFT_PLACEMENT_H

#include <stdint.h>

#include "metal_dlpack/msl/include/softmetal_kernel.h"

typedef struct soft_placement {
    const soft_launch *launch; /* borrowed */
    soft_u32 thread_count;
    soft_u32 size[3];          /* smaller than launch->group at the far edges */
    soft_u32 position[3];      /* among the threadgroups */
    soft_u32 first_in_grid[3]; /* of its threads */
} soft_placement;

/* Of the threadgroup with this number: they count along x first, then along y and z. */
void soft_placement_begin(soft_placement *placement, const soft_launch *launch,
                          uint64_t number);
/* All that a thread knows, by its index in the threadgroup. */
void soft_placement_of(const soft_placement *placement, soft_u32 index, soft_thread *thread);

#endif /* SOFT_PLACEMENT_H */
