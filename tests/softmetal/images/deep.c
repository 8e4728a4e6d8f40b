/* deep.c: a thread with 200 KiB of variables. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    volatile soft_u8 large[200 * 1024];
    for (soft_u32 i = 0; i < sizeof large; i += 64) {
        large[i] = (soft_u8)(i + thread->index);
    }
    BARRIER(1);
    soft_u32 sum = 0;
    for (soft_u32 i = 0; i < sizeof large; i += 64) {
        sum += (soft_u8)(large[i] - thread->index);
    }
    ((soft_u32 *)thread->launch->buffers[0])[place_in_grid(thread)] = sum;
}

IMAGE(1, run_thread, 0);
