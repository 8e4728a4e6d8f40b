/* leave_early.c: every second thread returns before a barrier that the others wait at. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    soft_u32 *out = thread->launch->buffers[0];
    soft_u32 *sum = RUNTIME->threadgroup_variable(0, sizeof *sum, 4);
    if (thread->index == 0) {
        *sum = 0;
    }
    BARRIER(1);
    if (thread->index % 2 != 0) {
        return;
    }
    *sum += 1;
    BARRIER(2);
    out[place_in_grid(thread)] = *sum;
}

IMAGE(1, run_thread, 0);
