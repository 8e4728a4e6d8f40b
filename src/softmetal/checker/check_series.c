/* check_series.c: accesses that are looked at together.
 *
 * In most kernels thread 0 touches item 0, thread 1 item 1, and so on.  The first such access of an
 * instruction in a row of threads begins a series, if the whole row would stay within the range.
 * Then the image itself notes which threads make theirs (softmetal_checked.cpp), wherever the address
 * grows by the same step from thread to thread; any other access asks.  At the end of the row a
 * series is judged: 16 accesses at once where they fill a block of the shadow, else one by one.
 *
 * Threads of a row do not wait for each other, so all that is delayed is unordered, or made by one
 * thread: whether two accesses race is the same in whatever order they are judged.
 *
 * Owns:    the series of check->series, from their first access until they are judged.
 * Calls:   check_races.c.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"

#include <string.h>

#include "softmetal/fiber.h"

#define SHORTEST 8        /* threads that must be left in the row */
#define LONGEST_STEP 4096 /* bytes */
#define IDLE_AFTER_ONE 32 /* accesses that are not counted, after a series of one */

static soft_mark
mark_of(const soft_check *check, soft_u32 how, const soft_site *site)
{
    return (soft_mark){check->order.now,
                       soft_mark_who(check->watch->thread, (how & SOFT_ACCESS_ATOMIC) != 0,
                                     soft_check_offset(check, site->code))};
}

/* Have all threads of a block made theirs? */
static bool
is_full(const soft_u8 *seen)
{
    soft_u64 half[SOFT_BLOCK / 8];
    memcpy(half, seen, sizeof half);
    return (half[0] & half[1]) == 0x0101010101010101;
}

SOFT_ON_FIBER static void
judge(soft_check *check, const soft_series *series)
{
    const soft_u8 *seen = &series->seen[soft_mark_thread(series->first)];
    bool is_close = series->step == series->nbytes;
    soft_u32 done = 0;
    while (done < series->count) {
        uintptr_t at = series->low + done * series->step;
        soft_mark now = {series->first.time, series->first.who + done}; /* a later thread */
        if (is_close && series->count - done >= SOFT_BLOCK && is_full(seen + done) &&
            soft_race_touch_block(check, series->range, at, series->nbytes, series->how, now)) {
            done += SOFT_BLOCK;
            continue;
        }
        if (seen[done]) {
            soft_race_touch(check, series->range, at, series->nbytes, series->how, now);
        }
        done += 1;
    }
}

/* Judge a series and forget it: its site asks from now on. */
SOFT_ON_FIBER static void
end_one(soft_check *check, soft_series *series)
{
    series->site->key = SOFT_NO_KEY;
    series->site = NULL;
    check->series_count -= 1;
    judge(check, series);
}

SOFT_ON_FIBER void
soft_series_end(soft_check *check)
{
    for (soft_series *series = check->series; check->series_count > 0; series++) {
        if (series->site != NULL) {
            end_one(check, series);
        }
    }
}

/* This thread's access is not where its instruction's series expects it: what step would fit? */
static void
learn_step(const soft_series *series, uintptr_t at, soft_u32 thread)
{
    size_t threads = thread - soft_mark_thread(series->first);
    if (threads == 0 || at <= series->low) {
        return;
    }
    size_t step = (at - series->low) / threads;
    if (step * threads == at - series->low && step >= series->nbytes && step <= LONGEST_STEP) {
        series->site->step = step;
    }
}

/* End the series of this instruction, if it has one: this access is none of it. */
SOFT_ON_FIBER static void
end_own(soft_check *check, const soft_site *site, uintptr_t at)
{
    for (int i = 0; i < SOFT_MOST_SERIES && check->series_count > 0; i++) {
        soft_series *series = &check->series[i];
        if (series->site == site) {
            soft_u32 thread = check->watch->thread;
            learn_step(series, at, thread);
            series->site->idle =
                thread == soft_mark_thread(series->first) + 1 ? IDLE_AFTER_ONE : 0;
            end_one(check, series);
        }
    }
}

/* Count the threads whose first access this may be. */
static soft_u32
count_threads(soft_check *check, const soft_series *asked, soft_site *site)
{
    soft_u32 left = check->row_end - check->watch->thread;
    if (left < SHORTEST || asked->how & SOFT_ACCESS_ATOMIC ||
        asked->range->shadow->is_fresh_read || soft_given_has_gaps(asked->range)) {
        return 1;
    }
    if (site->idle > 0) {
        site->idle -= 1;
        return 1;
    }
    size_t room = asked->range->base + asked->range->nbytes - asked->low;
    return (left - 1) * asked->step + asked->nbytes <= room ? left : 1;
}

/* Let the image count from here on.  There is a free place. */
static void
begin(soft_check *check, const soft_series *asked, soft_site *site)
{
    soft_u32 thread = check->watch->thread;
    int place = 0;
    while (check->series[place].site != NULL) {
        place += 1;
    }
    soft_series *series = &check->series[place];
    *series = *asked;
    series->site = site;
    series->seen = check->seen[place];
    memset(&series->seen[thread], 0, asked->count);
    series->seen[thread] = 1;
    check->series_count += 1;
    site->step = asked->step;
    site->key = asked->low - asked->step * thread;
    site->seen = series->seen;
}

/* Whether fresh bytes are written when they are read is a matter of the order: no access to them waits
 * from here on. */
SOFT_ON_FIBER static void
end_those_of(soft_check *check, const soft_shadow *shadow)
{
    for (int i = 0; i < SOFT_MOST_SERIES && check->series_count > 0; i++) {
        if (check->series[i].site != NULL && check->series[i].range->shadow == shadow) {
            end_one(check, &check->series[i]);
        }
    }
}

/* See soft_race_may_wait: mostly the instruction has written nothing yet in this threadgroup. */
static inline bool
may_wait(const soft_check *check, const soft_series *asked, const soft_site *site)
{
    return !(asked->how & SOFT_ACCESS_WRITE) ||
           (site->wrote != check->era && soft_mark_offset(asked->first) != 0) ||
           soft_race_may_wait(check, asked->range, asked->low, asked->nbytes, asked->step,
                              asked->count, asked->first);
}

/* noinline: what is not of a device's memory needs none of its registers. */
SOFT_ON_FIBER static __attribute__((noinline)) void
touch_device(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
             soft_u32 how, soft_site *site)
{
    soft_series asked = {
        .range = range,
        .low = at,
        .nbytes = nbytes,
        .step = site->step < nbytes ? nbytes : site->step,
        .how = how,
        .first = mark_of(check, how, site),
    };
    if (range->fresh != NULL && (!(how & SOFT_ACCESS_WRITE) || how & SOFT_ACCESS_READ)) {
        range->shadow->is_fresh_read = true;
        end_those_of(check, range->shadow);
    }
    asked.count = count_threads(check, &asked, site);
    end_own(check, site, at);
    if (asked.count > 1 && check->series_count < SOFT_MOST_SERIES &&
        may_wait(check, &asked, site)) {
        begin(check, &asked, site);
    }
    else {
        soft_race_touch(check, range, at, nbytes, how, asked.first);
    }
    if (how & SOFT_ACCESS_WRITE) {
        site->wrote = check->era;
    }
}

SOFT_ON_FIBER void
soft_series_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                  soft_u32 how, soft_site *site)
{
    if (range->memory != SOFT_THREADGROUP_MEMORY) {
        touch_device(check, range, at, nbytes, how, site);
    }
    else { /* mostly of kernels whose threads wait: no row of them is run at once */
        soft_race_touch(check, range, at, nbytes, how, mark_of(check, how, site));
    }
}

SOFT_ON_FIBER void
soft_series_access(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                   soft_u32 how, soft_site *site)
{
    bool is_asked = soft_given_has_gaps(range);
    if (range->shadow->nbytes == 0) { /* nobody writes there, so nothing can race */
        if (!is_asked) {
            site->low = range->base;
            site->span = range->nbytes - nbytes + 1;
        }
        return;
    }
    if (range->shadow->cells == NULL) { /* an unchecked kernel would pass for a right one */
        soft_check_stop_without_memory(check);
    }
    site->range = range;
    site->era = is_asked ? check->era - 1 : check->era;
    soft_series_touch(check, range, at, nbytes, how, site);
}
