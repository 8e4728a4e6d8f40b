/* checked_launch.h: what the checker is told of a launch.
 *
 * Owns:    nothing.
 * Calls:   softmetal_kernel.h; `abandon` of the launch, to leave a kernel that must not go on.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECKED_LAUNCH_H
#define SOFT_CHECKED_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "softmetal/shim/softmetal_kernel.h"

#define SOFT_MOST_PLACES 128 /* threadgroup variables and arguments of one kernel */

#define SOFT_GIVEN_NBYTES 240

/* What an argument was given, where its parameter does not say so: softmetal_given, kept. */
typedef struct soft_given {
    struct soft_given *next;
    soft_u32 index;
    bool is_strided;
    int axes;
    size_t item_nbytes;
    char text[SOFT_GIVEN_NBYTES];
    size_t steps[][2];
} soft_given;

/* What is launched.  All of it is borrowed until soft_check_end. */
typedef struct soft_check_launch {
    const char *kernel;      /* its name, for the reports */
    const char *image_path;  /* for the reports: Python finds lines by it */
    const char *image_base;  /* where the image is loaded, as dladdr tells (dli_fbase) ... */
    size_t image_nbytes;     /* ... and to the end of its last segment */
    const soft_image *image; /* its facts */
    const soft_launch *launch;
    void (*abandon)(void); /* leaves the running kernel function for good: the launch goes to
                                  soft_check_end.  Called on the thread's stack or a small one,
                                  with no lock held; never returns */
} soft_check_launch;

#endif /* SOFT_CHECKED_LAUNCH_H */
