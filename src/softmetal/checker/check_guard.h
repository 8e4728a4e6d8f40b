/* check_guard.h: takes a kernel's thread away from what it does, when that would end or hang the
 * process.
 *
 * Two ways lead there.  An instruction of the image makes the processor complain (a pointer into
 * nowhere, a trap that clang put behind an array, a division by zero, no stack left): a handler of
 * SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE on a stack of its own.  Or a checked launch takes longer than
 * allowed, and a timer sends the thread SIGURG until that finds it in the image; or a threadgroup of an
 * unchecked one does, and late.h sends SIGTRAP.  Either way the
 * thread goes on in `leave`, on a small stack.  In a checked launch our code is not interrupted: code
 * outside the image is left only where the stack has ended, which the checker's own looks at first
 * (need_room in check.c).  A launch that is not checked is left wherever it is on a fiber: what runs
 * there is the image, what it calls of the C library (memcpy, memset, mathematics), and a run time
 * without locks.  All other faults go to the earlier handlers.
 *
 * The handlers are installed when the first kernel runs, and stay; on top of whatever came later they
 * are installed while a checked kernel runs, and any other where somebody has taken SIGSEGV since
 * (tvm-ffi and faulthandler do).  They hand on what is not theirs, SIGABRT always; if the process dies
 * of it, last_words.h says what may be behind it.
 *
 * Owns:    the handlers; the stacks of each OS thread that runs kernels; a timer for each checked launch.
 * Calls:   pthread, sigaction, timer_create, late.h.
 * Threads: a guard belongs to the OS thread that entered it.
 */
#ifndef SOFT_CHECK_GUARD_H
#define SOFT_CHECK_GUARD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define SOFT_BELOW_STACK_NBYTES \
    ((uintptr_t)64 << 10) /* an address so near below a stack was reached by leaving it */

typedef struct soft_guard {
    uintptr_t image_low, image_high; /* instructions there may be left for good */
    void (*leave)(void);             /* never returns */
    uintptr_t (*stack_low)(void);    /* the end of the fiber's stack; called by a handler */
    bool is_checked;                 /* else whatever runs on the fiber may be left as well */
    void (*hurry)(void); /* makes the next access stop the launch; called by a handler */
    /* Why: for `leave`. */
    int signal;            /* SIGURG: out of time */
    uintptr_t address;     /* that the processor complained about */
    uintptr_t instruction; /* where */
    /* its own */
    struct soft_progress
        *progress; /* of its OS thread, also for soft_progress_step; NULL: none */
    int nudges;
    bool has_timer;
    timer_t timer;
    sigset_t earlier_mask;
    uint64_t deadline_ns;
    char *leave_stack_top;
} soft_guard;

/* Around a launch of `kernel` that is not checked: what soft_guard_begin returns goes to soft_guard_end. */
bool soft_guard_begin(const char *kernel);
void soft_guard_end(bool is_on_top);

/* Guard what this OS thread runs next: the first four fields are filled.
 * Without memory for the stacks it is not guarded. */
void soft_guard_set(soft_guard *guard);
void soft_guard_clear(void);

/* Guard a checked launch on this OS thread for `seconds` (0: without a limit); the first five are
 * filled.  False: there is no memory. */
bool soft_guard_enter(soft_guard *guard, uint64_t seconds);
void soft_guard_exit(soft_guard *guard);

#endif /* SOFT_CHECK_GUARD_H */
