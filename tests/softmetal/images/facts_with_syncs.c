/* facts_with_syncs.c: as facts.c, by the thread that the run time says is running. */
#include "image.h"

static void
run_thread(const soft_thread *thread)
{
    soft_thread *out = thread->launch->buffers[0];
    BARRIER(1);
    out[place_in_grid(RUNTIME->self())] = *thread;
}

IMAGE(1, run_thread, 0);
