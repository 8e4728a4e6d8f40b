/* facts.c: each thread leaves its soft_thread in a list, at its place in the grid. */
#include "image.h"

static void
run_rows(const soft_thread *first, soft_u32 count, soft_u32 rows)
{
    soft_thread *out = first->launch->buffers[0];
    for (soft_u32 i = 0; i < rows * count; i++) {
        soft_thread thread = *first;
        thread.position_in_grid[0] += i % count;
        thread.position_in_group[0] += i % count;
        thread.position_in_grid[1] += i / count;
        thread.position_in_group[1] += i / count;
        thread.index += i;
        thread.lane = thread.index % SOFT_SIMD_WIDTH;
        thread.simdgroup = thread.index / SOFT_SIMD_WIDTH;
        out[place_in_grid(&thread)] = thread;
    }
}

static void
run_thread(const soft_thread *thread)
{
    run_rows(thread, 1, 1);
}

IMAGE(0, run_thread, run_rows);
