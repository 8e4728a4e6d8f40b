/* placement.c: see placement.h.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: any.
 */
#include "softmetal/kernels/placement.h"

/* One axis's share of a number that counts along x first.  Division is slow, and most grids are
 * lines. */
static inline soft_u32
take_axis(uint64_t *number, soft_u32 extent)
{
    uint64_t all = *number, more = all < extent ? 0 : all / extent;
    *number = more;
    return (soft_u32)(all - more * extent);
}

void
soft_placement_begin(soft_placement *placement, const soft_launch *launch, uint64_t number)
{
    placement->launch = launch;
    placement->thread_count = 1;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 at = take_axis(&number, launch->groups[axis]);
        soft_u32 first = at * launch->group[axis], left = launch->grid[axis] - first;
        placement->position[axis] = at;
        placement->first_in_grid[axis] = first;
        placement->size[axis] = left < launch->group[axis] ? left : launch->group[axis];
        placement->thread_count *= placement->size[axis];
    }
}

void
soft_placement_of(const soft_placement *placement, soft_u32 index, soft_thread *thread)
{
    uint64_t rest = index;
    thread->launch = placement->launch;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 at = take_axis(&rest, placement->size[axis]);
        thread->position_in_group[axis] = at;
        thread->position_in_grid[axis] = placement->first_in_grid[axis] + at;
        thread->group_position[axis] = placement->position[axis];
        thread->group_size[axis] = placement->size[axis];
    }
    thread->index = index;
    thread->lane = index % SOFT_SIMD_WIDTH;
    thread->simdgroup = index / SOFT_SIMD_WIDTH;
    thread->simdgroups = (placement->thread_count + SOFT_SIMD_WIDTH - 1) / SOFT_SIMD_WIDTH;
}
