/* check_state.h: one checked launch: what its files share.
 *
 *     check.c          the calls of the run time; what an access is part of
 *     check_memory.c   which memory is the kernel's: views, threadgroup memory
 *     check_races.c    an access against the shadow (check_shadow.h, check_order.h)
 *     check_barriers.c who waits where
 *     check_report.c   what was found
 *     check_guard.c    faults of the processor, time that runs out
 *
 * Owns:    as each field says.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_STATE_H
#define SOFT_CHECK_STATE_H

#include "softmetal/kernels/check.h"
#include "softmetal/kernels/check_guard.h"
#include "softmetal/kernels/check_order.h"
#include "softmetal/kernels/check_report.h"
#include "softmetal/kernels/check_shadow.h"

#define SOFT_MOST_PLACED 96 /* threadgroup variables and arguments */
#define SOFT_MOST_RANGES (SOFT_MOST_BUFFERS + SOFT_MOST_PLACED)
#define SOFT_RECENT 64 /* a power of 2 */

/* Bytes that the kernel may touch: a buffer's view, or a piece of threadgroup memory. */
typedef struct soft_range {
    uintptr_t base;
    size_t nbytes;
    soft_shadow *shadow; /* views on the same bytes share it */
    int memory;          /* SOFT_DEVICE_MEMORY, SOFT_THREADGROUP_MEMORY */
    bool is_variable;    /* of the kernel, not an argument */
    bool is_writable;
    uint32_t number; /* index of the argument, or the translator's of the variable */
} soft_range;

/* A thread writes what another has written by the same instruction: a race, unless it is the same
 * value.  That shows at its next access. */
typedef struct soft_rewrite {
    const soft_range *range; /* NULL: there is none */
    uintptr_t at;
    size_t nbytes;
    soft_mark earlier, now;
    unsigned char bytes[16]; /* as the other left them */
} soft_rewrite;

typedef struct soft_check {
    soft_check_launch launch; /* borrowed */
    uintptr_t image_base;
    /* where the running thread may do as it likes */
    uintptr_t stack_low;
    size_t stack_nbytes;
    const soft_thread *thread;             /* that runs */
    const soft_range *recent[SOFT_RECENT]; /* by site: what it touched last */
    soft_range ranges[SOFT_MOST_RANGES];
    int view_count, range_count;
    soft_shadow shadows[SOFT_MOST_BUFFERS + 1]; /* owned; [0]: threadgroup memory */
    int shadow_count;
    uintptr_t state_low;
    size_t state_nbytes;
    soft_order order; /* owned */
    soft_rewrite rewrite;
    soft_findings findings;
    soft_guard guard;
    bool is_overdue;
    /* the threadgroup's threads */
    soft_u32 thread_count, returned_count;
    soft_u32 wait_flags;                  /* that all who wait have in common */
    const void *sites[SOFT_MOST_THREADS]; /* where each waits; NULL: it does not */
    bool has_returned[SOFT_MOST_THREADS];
} soft_check;

static inline uint32_t
soft_check_offset(const soft_check *check, const void *site)
{
    return (uint32_t)((uintptr_t)site - check->image_base);
}

/* The running thread at `site`; another thread of this threadgroup; what made a mark. */
soft_at soft_at_running(const soft_check *check, const void *site);
soft_at soft_at_thread(const soft_check *check, soft_u32 index, const void *site);
soft_at soft_at_mark(const soft_check *check, soft_mark mark);

/* Leave the kernel for good; call it after a finding is kept. */
_Noreturn void soft_check_stop(soft_check *check);

/* check_memory.c */
void soft_memory_open(soft_check *check);
void soft_memory_close(soft_check *check);
/* What an access is part of; NULL: of memory that all may read.  Does not return from an access
 * outside the kernel's memory. */
const soft_range *soft_memory_find(soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                                   const void *site);
/* "argument 1 (y)" */
void soft_memory_name(const soft_check *check, const soft_range *range, char *text,
                      size_t nbytes);

/* check_races.c */
void soft_race_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                     soft_u32 how, const void *site);

/* Before anything else happens: judge check->rewrite, if there is one. */
void soft_race_judge(soft_check *check);

/* check_barriers.c */
void soft_barriers_group(soft_check *check, const soft_u32 position[3]);
void soft_barriers_wait(soft_check *check, soft_u32 mem_flags, const void *site);
void soft_barriers_open(soft_check *check);
void soft_barriers_return(soft_check *check);
void soft_barriers_meet(soft_check *check, soft_u32 simdgroup, soft_u32 lanes);

#endif /* SOFT_CHECK_STATE_H */
