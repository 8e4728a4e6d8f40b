/* check_barriers.h: who of a threadgroup waits where.
 *
 * Owns:    nothing.
 * Calls:   check_order.h, check_report.h.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_BARRIERS_H
#define SOFT_CHECK_BARRIERS_H

#include "softmetal/checker/check_state.h"

void soft_barriers_group(soft_check *check, const soft_u32 position[3]);
/* The running thread comes to a barrier. */
void soft_barriers_wait(soft_check *check, soft_u32 mem_flags, const void *site);
/* All that have not returned wait.  Does not return if they wait at several places. */
void soft_barriers_open(soft_check *check);
void soft_barriers_meet(soft_check *check, soft_u32 simdgroup, soft_u32 lanes);

static inline void
soft_barriers_return(soft_check *check)
{
    check->has_returned[check->thread->index] = true;
}

#endif /* SOFT_CHECK_BARRIERS_H */
