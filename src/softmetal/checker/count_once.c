/* count_once.c: accesses to which no thread comes twice: what the lanes of a SIMD-group did is one series
 * or one list.
 *
 *     lane           0       1       2    ...   31
 *     foreseen     ahead   +step   +step      +step   due      `ahead` goes along, and is all that is written
 *     elsewhere           once[1]                              by its lane; SOFT_NO_KEY: it was not here
 *
 *     SIMD-group   the last    1st      2nd    ...   many-th     each as far from the one before, `apart`,
 *     began at      begin    +apart   +apart        +apart      as the last two were that were summed up
 *
 * If `ahead` has come to `due`, all lanes were where they were foreseen, and no list is looked at: the
 * SIMD-group is one of `many` that are summed up later, and up to `left` more are foreseen.
 *
 * Owns:    nothing; `once` is the image's.
 * Calls:   count_sums.c.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/count_state.h"
#include "softmetal/fiber.h"

SOFT_ON_FIBER static void
forget_lanes(soft_u64 once[SOFT_SIMD_WIDTH])
{
    for (int i = 0; i < SOFT_SIMD_WIDTH; i++) {
        once[i] = SOFT_NO_KEY;
    }
}

SOFT_ON_FIBER void
soft_once_forget(soft_counted *site)
{
    forget_lanes(site->once);
    site->begin = SOFT_NO_KEY;
    site->step = site->apart = 0;
    site->many = 0;
    soft_once_foresee_none(site);
}

/* How many SIMD-groups there may be of which nothing needs to be asked, because all of it lies in the
 * memory that was touched last. */
SOFT_ON_FIBER static soft_u32
count_foreseeable(const soft_counted *site)
{
    const soft_range *range = site->range;
    soft_u64 begin = site->begin + site->apart;
    soft_u64 end = begin + site->step * (SOFT_SIMD_WIDTH - 1);
    if (site->step == 0 || range == NULL || !soft_range_has(range, begin, site->nbytes) ||
        !soft_range_has(range, end, site->nbytes)) {
        return 0;
    }
    if (!soft_count_is_of_neighbours(site)) { /* they are summed up one by one */
        return 1;
    }
    soft_u64 room = UINT32_MAX - 1;
    if (site->apart != 0) {
        room = site->apart >> 63 == 0
                   ? (range->base + range->nbytes - site->nbytes - end) / site->apart
                   : (begin - range->base) / -site->apart;
    }
    return room < UINT32_MAX ? (soft_u32)room + 1 : UINT32_MAX;
}

SOFT_ON_FIBER static void
foresee(const soft_check *check, soft_counted *site)
{
    soft_u32 left = check->is_overdue ? 0 : count_foreseeable(site);
    soft_once_foresee_none(site);
    if (left != 0) {
        site->left = left;
        site->ahead = site->begin + site->apart;
        site->due = site->ahead + site->step * SOFT_SIMD_WIDTH;
    }
}

SOFT_ON_FIBER void
soft_once_settle(soft_check *check, soft_counted *site)
{
    if (site->many != 0) {
        soft_count_sum_up_series(check, site);
        site->begin += site->apart * site->many;
        site->many = 0;
    }
}

/* All lanes that came, those first that were foreseen.  What is behind them is nothing. */
SOFT_ON_FIBER static size_t
list_lanes(const soft_counted *site, soft_u64 each[SOFT_SIMD_WIDTH + 1])
{
    size_t count = 0;
    if (site->ahead != SOFT_NO_KEY) {
        soft_u64 at = site->due - site->step * SOFT_SIMD_WIDTH;
        for (; at != site->ahead; at += site->step) {
            each[count++] = at;
        }
    }
    for (int i = 0; i < SOFT_SIMD_WIDTH; i++) {
        each[count] = site->once[i];
        count += site->once[i] != SOFT_NO_KEY;
    }
    return count;
}

SOFT_ON_FIBER static bool
is_series(const soft_u64 each[SOFT_SIMD_WIDTH], size_t count, soft_u64 step)
{
    soft_u64 at = each[0], apart = 0;
    for (size_t i = 0; i < count; i++) {
        apart |= each[i] ^ at;
        at += step;
    }
    return apart == 0;
}

/* Not all lanes were foreseen. */
SOFT_ON_FIBER static void
sum_up_list(soft_check *check, soft_counted *site, soft_u64 each[SOFT_SIMD_WIDTH], size_t count)
{
    soft_u64 step = count > 1 ? each[1] - each[0] : 0;
    soft_together one = {.first = each[0], .lanes = UINT32_MAX >> (SOFT_SIMD_WIDTH - count)};
    if (is_series(each, count, step)) {
        one.step = step;
    }
    else {
        one.each = each;
    }
    site->apart =
        site->begin == SOFT_NO_KEY ? one.step * SOFT_SIMD_WIDTH : one.first - site->begin;
    site->begin = one.first;
    site->step = one.step;
    soft_count_sum_up(check, site, &one);
}

SOFT_ON_FIBER bool
soft_once_sum_up(soft_check *check, soft_counted *site)
{
    if (site->ahead == site->due && !check->is_overdue) {
        site->many += 1;
        site->left -= 1;
        site->ahead = site->due + site->apart - site->step * SOFT_SIMD_WIDTH;
        site->due += site->apart;
        if (site->left == 0) {
            soft_once_settle(check, site);
            foresee(check, site);
        }
        return true;
    }
    soft_u64 each[SOFT_SIMD_WIDTH + 1];
    size_t count = list_lanes(site, each);
    soft_once_settle(check, site);
    if (count == 0) {
        site->span = 0;
        soft_once_foresee_none(site);
        return false;
    }
    forget_lanes(site->once);
    sum_up_list(check, site, each, count);
    foresee(check, site);
    return true;
}
