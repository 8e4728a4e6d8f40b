/* who_works.c: each threadgroup takes a millisecond, and leaves the OS thread that ran it and
 * the time when it began, in nanoseconds. */
#include "image.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static void
run_rows(const soft_thread *first, soft_u32 count, soft_u32 rows)
{
    soft_u64 *out = (soft_u64 *)first->launch->buffers[0] + 2 * first->group_position[0];
    struct timespec now;
    (void)count, (void)rows;
    clock_gettime(CLOCK_MONOTONIC, &now);
    out[0] = (soft_u64)pthread_self();
    out[1] = (soft_u64)now.tv_sec * 1000000000 + (soft_u64)now.tv_nsec;
    usleep(1000);
}

IMAGE(0, 0, run_rows);
