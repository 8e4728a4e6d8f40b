/* add.c: an image, as a compiler makes one of
 *
 *     kernel void add(device int *out [[buffer(0)]], device const int4 *a [[buffer(1)]],
 *                     constant int &b [[buffer(2)]], uint i [[thread_position_in_grid]])
 *     { out[i] = a[i].x + b; }
 */
#include "image.h"

static const soft_argument_facts arguments[] = {
    {"out", SOFT_ARGUMENT_BUFFER, 1, 0, 29, 4, 4, 0, 0, 0, 1},
    {"a", SOFT_ARGUMENT_BUFFER, 0, 1, 32, 16, 16, 0, 0, 0, 1},
    {"b", SOFT_ARGUMENT_BUFFER, 0, 2, 29, 4, 4, 0, 0, 0, 1},
};

static void
run_thread(const soft_thread *thread)
{
    soft_u32 i = thread->position_in_grid[0];
    int *out = thread->launch->buffers[0];
    const int *a = thread->launch->buffers[1], *b = thread->launch->buffers[2];
    out[i] = a[4 * i] + *b;
}

static void
run_rows(const soft_thread *first, soft_u32 count, soft_u32 rows)
{
    for (soft_u32 index = 0; index < rows * count; index++) {
        soft_thread thread = *first;
        thread.position_in_grid[0] += index % count;
        thread.position_in_grid[1] += index / count;
        run_thread(&thread);
    }
}

soft_image softmetal_image = {
    .abi = SOFT_KERNEL_ABI,
    .argument_count = 3,
    .arguments = arguments,
    .run_thread = run_thread,
    .run_rows = run_rows,
};
