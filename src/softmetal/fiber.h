/* fiber.h: stacks on which threads of a kernel run, and the switch from one to another.
 *
 *     high addresses   [ colour ]  unused: up to 4 KiB, another length for each of its neighbours
 *                      [ frames ]  grow downwards
 *                      [  ...   ]  SOFT_FIBER_STACK_NBYTES in all
 *     low addresses    [ guard  ]  one page that nobody may touch: an overflow crashes there
 *
 * Without the colour the tops of all stacks would share a few sets of the CPU's cache.
 *
 * Owns:    the memory of the stack, for ever.
 * Calls:   the system.
 * Threads: a fiber runs on one OS thread at a time.
 */
#ifndef SOFT_FIBER_H
#define SOFT_FIBER_H

#include <stdbool.h>

#include "softmetal/shim/softmetal_kernel.h"

#define SOFT_FIBER_STACK_NBYTES (256 * 1024)

/* Mark every function that switches, or calls one that does.  The sanitizers know the OS thread's
 * stack alone, and count the calls and returns on it: whoever may be left for good is not theirs. */
#if defined(__clang__)
#define SOFT_ON_FIBER __attribute__((disable_sanitizer_instrumentation))
#else
#define SOFT_ON_FIBER __attribute__((no_sanitize("address,thread,undefined")))
#endif

typedef struct soft_fiber {
    void *stack_pointer;     /* while no thread is on it */
    char *stack;             /* NULL: not made yet */
    struct soft_fiber *next; /* of the fibers that are free */
    soft_thread thread;      /* which runs on it */
} soft_fiber;

typedef void soft_fiber_entry(void *context); /* never returns */

/* Give it a stack.  False: the system has no memory, or too many pieces of it. */
bool soft_fiber_make(soft_fiber *fiber);
/* The next switch to it calls entry(context); whatever ran on it is forgotten. */
void soft_fiber_prepare(soft_fiber *fiber, unsigned number, soft_fiber_entry *entry,
                        void *context);

/* Leave this stack, at `*from`, for another.  Returns when somebody switches back. */
void soft_fiber_switch(void **from, void *to);

#endif /* SOFT_FIBER_H */
