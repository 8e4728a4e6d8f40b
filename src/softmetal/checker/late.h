/* late.h: finds a threadgroup that does not end.
 *
 * A thread of ours looks once a second at each OS thread that runs kernels: is it still in the
 * threadgroup of a second ago, and how much processor time has it taken since?  So a launch makes no
 * call of the system, and who sleeps or is stopped is not late.  It sleeps itself while no kernel runs.
 *
 * Owns:    that thread, and the list of OS threads, behind a lock.
 * Calls:   pthread, host.h, settings.h.
 * Threads: a soft_progress belongs to its OS thread; the others read and write what is atomic.
 */
#ifndef SOFT_LATE_H
#define SOFT_LATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* How far an OS thread is. */
typedef struct soft_progress {
    uint64_t serial; /* atomic: raised when a threadgroup begins */
    bool is_running; /* atomic: a launch that nobody checks */
    uint64_t late;   /* atomic: the threadgroup that has had its time */
    /* behind the lock */
    pthread_t thread;
    clockid_t clock; /* of its processor time */
    uint64_t seen, seen_ns;
    struct soft_progress *next;
} soft_progress;

/* This OS thread runs kernels, until it ends. */
void soft_progress_add(soft_progress *progress);
void soft_progress_remove(soft_progress *progress);

/* A launch begins that nobody checks: watch it.  `tell` is called with the OS thread of a threadgroup
 * that has taken SOFTMETAL_KERNEL_TIMEOUT of processor time, once a second until it is no longer there. */
void soft_late_watch(void (*tell)(pthread_t thread));

/* The next threadgroup of this OS thread. */
static inline void
soft_progress_step(soft_progress *progress)
{
    uint64_t serial = __atomic_load_n(&progress->serial, __ATOMIC_RELAXED);
    __atomic_store_n(&progress->serial, serial + 1, __ATOMIC_RELAXED);
}

/* Has the threadgroup of this OS thread had its time?  For a handler. */
static inline bool
soft_progress_is_late(const soft_progress *progress)
{
    return __atomic_load_n(&progress->late, __ATOMIC_RELAXED) ==
           __atomic_load_n(&progress->serial, __ATOMIC_RELAXED);
}

#endif /* SOFT_LATE_H */
