/* check_guard.h: takes a kernel's thread away from what it does, when that would end or hang the
 * process.
 *
 * Two ways lead there.  An instruction of the image makes the processor complain (a pointer into
 * nowhere, a trap that clang put behind an array, a division by zero, no stack left): a handler of
 * SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE on a stack of its own.  Or the launch takes longer than
 * allowed: a timer sends the thread SIGURG until that finds it in the image.  Either way the
 * thread goes on in `leave`, on a small stack.  Nothing of ours is interrupted: code outside the
 * image, ours and the C library's, is never left so, and its faults go to the earlier handlers.
 *
 * The handlers are installed while a checked kernel runs, and hand on what is not theirs.
 *
 * Owns:    the handlers; a timer and a stack for each guard.
 * Calls:   pthread, sigaction, timer_create.
 * Threads: a guard belongs to the OS thread that entered it.
 */
#ifndef SOFT_CHECK_GUARD_H
#define SOFT_CHECK_GUARD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct soft_guard {
    uintptr_t image_low, image_high; /* instructions there may be left for good */
    void (*leave)(void);             /* never returns */
    void (*hurry)(void); /* makes the next access stop the launch; called by a handler */
    /* Why: for `leave`. */
    int signal;            /* SIGURG: out of time */
    uintptr_t address;     /* that the processor complained about */
    uintptr_t instruction; /* where */
    /* its own */
    int nudges;
    bool has_timer;
    timer_t timer;
    sigset_t earlier_mask;
    uint64_t deadline_ns;
    void *stacks;
    stack_t earlier_stack; /* of signals */
} soft_guard;

/* Guard this OS thread for `seconds` (0: without a limit); the first two fields are filled.
 * False: there is no memory. */
bool soft_guard_enter(soft_guard *guard, uint64_t seconds);
void soft_guard_exit(soft_guard *guard);

#endif /* SOFT_CHECK_GUARD_H */
