/* who_works.c: each threadgroup takes a millisecond and leaves the OS thread that ran it. */
#include "image.h"

extern int usleep(unsigned microseconds);
extern unsigned long pthread_self(void);

static void
run_row(const soft_thread *first, soft_u32 count)
{
    unsigned long *out = first->launch->buffers[0];
    (void)count;
    out[first->group_position[0]] = pthread_self();
    usleep(1000);
}

IMAGE(0, 0, run_row);
