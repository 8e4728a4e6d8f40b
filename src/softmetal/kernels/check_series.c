/* check_series.c: see check_series.h.
 *
 * Owns:    nothing.
 * Calls:   check_races.h.
 * Threads: the OS thread that series the launch.
 */
#include "softmetal/kernels/check_series.h"

#include <string.h>

#include "softmetal/kernels/check_races.h"
#include "softmetal/kernels/fiber.h"

#define SHORTEST 8            /* threads that must be left in the row */
#define IDLE_AFTER_ONE 32     /* accesses without an attempt, after a one of one access ... */
#define IDLE_AFTER_CLASH 1024 /* ... and after one that met others' */

static soft_mark
mark_of(const soft_check *check, soft_u32 how, const soft_site *site)
{
    return (soft_mark){check->order.now,
                       soft_mark_who(check->watch->thread, (how & SOFT_ACCESS_ATOMIC) != 0,
                                     soft_check_offset(check, site->code))};
}

static SOFT_ON_FIBER void
judge(soft_check *check, const soft_series *one, size_t count)
{
    uintptr_t at = one->low;
    soft_mark now = one->first;
    while (count > 0) {
        size_t step = SOFT_BLOCK;
        if (count < SOFT_BLOCK ||
            !soft_race_touch_block(check, one->range, at, one->nbytes, one->how, now)) {
            step = 1;
            soft_race_touch(check, one->range, at, one->nbytes, one->how, now);
        }
        at += step * one->nbytes;
        now.who += (uint32_t)step; /* the next thread */
        count -= step;
    }
}

/* Judge a one and forget it.  Its site asks from now on. */
static SOFT_ON_FIBER void
end_one(soft_check *check, int number)
{
    soft_series one = check->series[number];
    check->series_count -= 1;
    memmove(&check->series[number], &check->series[number + 1],
            (size_t)(check->series_count - number) * sizeof one);
    size_t count = one.site->thread - soft_mark_thread(one.first);
    one.site->thread = SOFT_NO_THREAD;
    if (count == 1 && one.site->idle == 0) {
        one.site->idle = IDLE_AFTER_ONE;
    }
    judge(check, &one, count);
}

SOFT_ON_FIBER void
soft_series_end(soft_check *check)
{
    while (check->series_count > 0) {
        end_one(check, 0);
    }
}

/* Would this thread's access be the one's own, were it made by the one's instruction? */
static bool
is_alike(const soft_series *one, uintptr_t at, size_t nbytes, soft_u32 thread)
{
    return nbytes == one->nbytes &&
           at == one->low + (uintptr_t)nbytes * (thread - soft_mark_thread(one->first));
}

/* End the series that an access of [at, high) by other threads may meet.  True: there were some. */
static SOFT_ON_FIBER bool
end_clashing(soft_check *check, uintptr_t at, size_t nbytes, uintptr_t high,
             const soft_site *site)
{
    bool has_clashed = false;
    for (int i = check->series_count - 1; i >= 0; i--) {
        const soft_series *one = &check->series[i];
        if (one->site == site) {
            end_one(check, i);
        }
        else if (at < one->high && high > one->low &&
                 !is_alike(one, at, nbytes, check->watch->thread)) {
            one->site->idle = IDLE_AFTER_CLASH;
            end_one(check, i);
            has_clashed = true;
        }
    }
    return has_clashed;
}

/* Is this the first of a row of accesses that may be judged later? */
static bool
may_begin(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes, soft_u32 how,
          soft_site *site)
{
    size_t left = check->row_end - check->watch->thread;
    if (left < SHORTEST || how & SOFT_ACCESS_ATOMIC ||
        check->series_count == SOFT_MOST_SERIES || range->memory != SOFT_DEVICE_MEMORY) {
        return false;
    }
    if (site->idle > 0) {
        site->idle -= 1;
        return false;
    }
    return left * nbytes <= range->base + range->nbytes - at;
}

SOFT_ON_FIBER void
soft_series_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                  soft_u32 how, soft_site *site)
{
    soft_mark now = mark_of(check, how, site);
    bool begins = may_begin(check, range, at, nbytes, how, site);
    size_t count = begins ? check->row_end - check->watch->thread : 1;
    uintptr_t high = at + count * nbytes;
    if (check->series_count > 0 && end_clashing(check, at, nbytes, high, site)) {
        begins = false;
        site->idle = IDLE_AFTER_CLASH;
    }
    if (!begins || (how & SOFT_ACCESS_WRITE &&
                    !soft_race_may_wait(check, range, at, nbytes, count, now))) {
        soft_race_touch(check, range, at, nbytes, how, now);
        return;
    }
    check->series[check->series_count++] =
        (soft_series){site, range, at, high, nbytes, how, now};
    site->next = at + nbytes;
    site->thread = check->watch->thread + 1;
}
