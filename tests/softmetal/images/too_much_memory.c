/* too_much_memory.c: one thread of many asks for a byte more than a threadgroup has. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    BARRIER(1);
    if (thread->index == thread->group_size[0] - 1) {
        RUNTIME->threadgroup_variable(0, 32768, 4);
        RUNTIME->threadgroup_variable(1, 1, 1);
    }
    BARRIER(2);
}

IMAGE(1, run_thread, 0);
