/* threadgroup.h: the threads of one threadgroup, taking turns on one OS thread.
 *
 *     soft_run          one launch: what all OS threads that work on it share
 *       ▲ borrowed
 *     soft_threadgroup  one OS thread's: runs threadgroup after threadgroup of the run
 *       ├── simdgroups[32]   which lanes are ready, meet, wait at the barrier
 *       ├── fibers[1024]     stacks, made when first needed, kept for ever
 *       ├── fiber_of[][]     on which of them a lane runs or waits
 *       ├── regions          what threads keep across waits, in a kernel that was split
 *       └── memory           what the threads share
 *
 * A kernel without syncs runs by rows, and one that was split by regions, on one fiber
 * (threadgroup_loops.c).  In other kernels each thread runs until it waits,
 * and then another runs; a fiber whose thread returns takes the next thread, or the next
 * threadgroup, so that a kernel that never waits never switches.
 *
 * Owns:    the fibers and the memory of threadgroups.
 * Calls:   fiber.h, simdgroup.h, placement.h, fault.h, check.h.
 * Threads: a soft_threadgroup is one OS thread's from take to give_back.
 */
#ifndef SOFT_THREADGROUP_H
#define SOFT_THREADGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/checker/check.h"
#include "softmetal/checker/check_guard.h"
#include "softmetal/fiber.h"
#include "softmetal/kernels/fault.h"
#include "softmetal/kernels/placement.h"
#include "softmetal/kernels/simdgroup.h"

#define SOFT_MOST_SIMDGROUPS (SOFT_MOST_THREADS / SOFT_SIMD_WIDTH)
#define SOFT_STOP_TEXT_NBYTES SOFT_FAULT_TEXT_NBYTES

typedef struct soft_run {
    const soft_image *image;
    const soft_launch *launch;
    soft_shuffle shuffle;
    uint64_t group_count;
    uintptr_t code_low, code_high; /* of the image */
    bool is_straight, is_checked, is_poisoned;
    int is_stopped; /* atomic: 1 someone writes `text`, 2 it is written */
    char text[SOFT_STOP_TEXT_NBYTES];
} soft_run;

SOFT_ON_FIBER static inline bool
soft_run_is_stopped(const soft_run *run)
{
    return __atomic_load_n(&run->is_stopped, __ATOMIC_RELAXED) != 0;
}

typedef struct soft_region_memory {
    soft_u8 *slots; /* mapped; behind them what is shared, two halves for each SIMD-group */
    soft_u64 nbytes;
    soft_u16 next[SOFT_MOST_THREADS]; /* the wait that a thread came to */
} soft_region_memory;

typedef struct soft_threadgroup {
    soft_run *run; /* borrowed while it works */
    uint64_t next_group, end_group;
    soft_placement placement;
    uint64_t random;
    soft_u32 runnable;        /* bit i: SIMD-group i has lanes that are ready, or meet */
    soft_u32 waiting;         /* bit i: SIMD-group i has lanes at the barrier */
    soft_u32 simdgroup, lane; /* of the thread that runs */
    soft_fiber *current, *free;
    unsigned fiber_count;
    soft_guard guard; /* of a run that is not checked */
    void *host;       /* the OS thread's own stack, while fibers run */
    struct soft_threadgroup *next_idle;
    soft_fiber *fiber_of[SOFT_MOST_SIMDGROUPS][SOFT_SIMD_WIDTH];
    void *stack_of[SOFT_MOST_SIMDGROUPS]
                  [SOFT_SIMD_WIDTH]; /* its stack pointer, while it waits */
    soft_simdgroup simdgroups[SOFT_MOST_SIMDGROUPS];
    soft_fiber fibers[SOFT_MOST_THREADS];
    soft_region_memory regions; /* of kernels that were split */
    soft_threadgroup_memory memory;
} soft_threadgroup;

/* One that nobody uses, or a new one; NULL: there is no memory. */
soft_threadgroup *soft_threadgroup_take(void);
void soft_threadgroup_give_back(soft_threadgroup *group);

/* Run these threadgroups, of run->group_count.  False: the run was stopped. */
bool soft_threadgroup_run(soft_threadgroup *group, soft_run *run, uint64_t first,
                          uint64_t count);

/* Make room for what the threads of a kernel that was split keep.  False: there is no memory. */
bool soft_threadgroup_fit(soft_threadgroup *group, const soft_regions *regions);

/* The next threadgroup.  False: there is none, or the run is stopped. */
typedef bool soft_next_group(soft_threadgroup *group);

/* On a fiber: run threadgroup after threadgroup, if their threads need no stacks of their own. */
void soft_threadgroup_loop(soft_threadgroup *group, soft_thread *thread,
                           soft_next_group *next_group);

SOFT_ON_FIBER static inline void
soft_threadgroup_tell_checker(const soft_threadgroup *group, soft_u32 count)
{
    if (group->run->is_checked) {
        const soft_fiber *fiber = group->current;
        soft_check_switch(&fiber->thread, count, fiber->stack,
                          fiber->stack + SOFT_FIBER_STACK_NBYTES);
    }
}

/* On a fiber: leave the kernel for good, and with it the soft_threadgroup_run that it runs in,
 * which is stopped.  Never returns. */
void soft_threadgroup_abandon(void);

extern const soft_runtime soft_threadgroup_runtime;

#endif /* SOFT_THREADGROUP_H */
