/* order.c: the threads leave their places in the order in which they run; a barrier between. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    soft_u32 *out = thread->launch->buffers[0]; /* [0]: how many are there */
    for (int turn = 0; turn < 2; turn++) {
        out[++out[0]] = (soft_u32)place_in_grid(thread);
        BARRIER(1);
    }
}

IMAGE(1, run_thread, 0);
