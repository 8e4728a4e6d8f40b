/* monotonic.h: time that never jumps, in nanoseconds, and condition variables that follow it.
 *
 * Owns:    nothing.
 * Threads: any.
 */
#ifndef SOFT_MONOTONIC_H
#define SOFT_MONOTONIC_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

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

#endif /* SOFT_MONOTONIC_H */
