/* check_races.h: an access against what the shadow remembers.
 *
 * Owns:    nothing.
 * Calls:   check_memory.h for names, check_order.h, check_shadow.h, check_report.h.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_RACES_H
#define SOFT_CHECK_RACES_H

#include "softmetal/checker/check_state.h"

/* One access, nbytes > 0; the range's shadow has cells. */
void soft_race_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                     soft_u32 how, soft_mark now);
/* As many as a block has grains, from its first on: `now` is the first one's, and each of the others
 * was made by the thread after.  False, and nothing is done: the block is split, or the accesses
 * are not of the size of its grains. */
bool soft_race_touch_block(soft_check *check, const soft_range *range, uintptr_t at,
                           size_t nbytes, soft_u32 how, soft_mark now);
/* May `count` writes, `step` bytes apart, be judged later?  Not if one may only repeat what another
 * thread wrote: that shows in the bytes before it. */
bool soft_race_may_wait(const soft_check *check, const soft_range *range, uintptr_t at,
                        size_t nbytes, size_t step, size_t count, soft_mark now);
void soft_race_judge(soft_check *check);

/* Before anything else happens: judge check->rewrite, if there is one. */
static inline void
soft_race_settle(soft_check *check)
{
    if (__builtin_expect(check->rewrite.range != NULL, 0)) {
        soft_race_judge(check);
    }
}

#endif /* SOFT_CHECK_RACES_H */
