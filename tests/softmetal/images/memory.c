/* memory.c: threadgroup memory: two variables and two arguments, none on another. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    soft_u64 *out = thread->launch->buffers[0];
    soft_u8 *places[] = {
        RUNTIME->threadgroup_variable(3, 100, 1),
        RUNTIME->threadgroup_argument(5),
        RUNTIME->threadgroup_variable(900, 64, 64),
        RUNTIME->threadgroup_argument(0),
    };
    out[4] += RUNTIME->threadgroup_variable(3, 100, 1) != places[0];
    for (int place = 0; place < 4; place++) {
        out[place] = (soft_u64)places[place];
        out[5 + place] = places[place][0];
        places[place][0] = 1;
    }
}

IMAGE(1, run_thread, 0);
