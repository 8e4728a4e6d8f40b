/* rotate.c: round after round each thread takes the number of its neighbour in the threadgroup. */
#include "image.h"

#define ROUNDS 50

static void
run_thread(const soft_thread *thread)
{
    soft_u32 *out = thread->launch->buffers[0];
    soft_u32 *shared = RUNTIME->threadgroup_variable(7, 1024 * sizeof *shared, 4);
    soft_u32 count = thread->group_size[0], value = thread->index;
    for (int round = 0; round < ROUNDS; round++) {
        shared[thread->index] = value;
        BARRIER(1);
        value = shared[(thread->index + 1) % count];
        BARRIER(2);
    }
    out[place_in_grid(thread)] = value;
}

IMAGE(1, run_thread, 0);
