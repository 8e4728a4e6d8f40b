/* host.h: the process that all this runs in: fork, exit, threads, time that never jumps, and room.
 *
 * Owns:    three flags (atomic).
 * Rule:    where memory or threads run out, a call fails as Metal's would: with nil, an error, or a
 *          command buffer that does no work.  Only what can do none of that ends the process, and
 *          says so.
 * Threads: any.
 */
#ifndef SOFT_HOST_H
#define SOFT_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

extern int soft_process_forked, soft_process_exiting; /* process.c sets them */

/* True in a child made by fork() after Metal was used: no worker exists there, and locks may be
 * held for ever by threads that do not exist. */
static inline bool
soft_process_is_forked(void)
{
    return __atomic_load_n(&soft_process_forked, __ATOMIC_RELAXED) != 0;
}

/* True once exit() runs: workers stop as soon as they look. */
static inline bool
soft_process_is_exiting(void)
{
    return __atomic_load_n(&soft_process_exiting, __ATOMIC_ACQUIRE) != 0;
}

/* Start a detached thread with all signals blocked: they are for the threads of the program.
 * False if the system has no thread left. */
bool soft_thread_start(void *(*run)(void *), void *argument);

/* True once the process ends by our own abort: soft_abort, which its caller has explained on stderr. */
extern int soft_process_aborting;

static inline bool
soft_process_is_aborting(void)
{
    return __atomic_load_n(&soft_process_aborting, __ATOMIC_RELAXED) != 0;
}

_Noreturn void soft_abort(void);

/* Say on stderr that there is no memory for `what`, and end the process: for calls that Metal lets
 * nobody refuse. */
_Noreturn void soft_end_without_memory(const char *what);

/* ---- time, in nanoseconds, and condition variables that follow it ---- */

#define SOFT_FOREVER UINT64_MAX

static inline uint64_t
soft_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The moment `amount` units of `unit_ns` from now; SOFT_FOREVER where that overflows. */
static inline uint64_t
soft_monotonic_after(uint64_t amount, uint64_t unit_ns)
{
    uint64_t nanoseconds, moment;
    if (__builtin_mul_overflow(amount, unit_ns, &nanoseconds) ||
        __builtin_add_overflow(soft_monotonic_ns(), nanoseconds, &moment)) {
        return SOFT_FOREVER;
    }
    return moment;
}

static inline void
soft_monotonic_init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Wait for a change or until `deadline_ns`; the caller looks at its own condition again. */
static inline void
soft_monotonic_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    if (deadline_ns == SOFT_FOREVER) {
        pthread_cond_wait(cond, lock);
        return;
    }
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };
    pthread_cond_timedwait(cond, lock, &deadline);
}

/* ---- arrays ---- */

/* Room for one item more in an array from realloc.  False: there is no memory, and it is as it was. */
static inline bool
soft_grow(void **array, size_t count, size_t *capacity, size_t item_nbytes)
{
    if (count < *capacity) {
        return true;
    }
    size_t wanted = *capacity == 0 ? 4 : *capacity * 2;
    void *larger = realloc(*array, wanted * item_nbytes);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    *capacity = wanted;
    return true;
}

#endif /* SOFT_HOST_H */
