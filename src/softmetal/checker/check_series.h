/* check_series.h: accesses that are looked at together.
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
 * Calls:   check_races.h.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_CHECK_SERIES_H
#define SOFT_CHECK_SERIES_H

#include "softmetal/checker/check_state.h"

/* An access of the running thread, within the range, which has cells. */
void soft_series_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                       soft_u32 how, soft_site *site);
/* Judge all series: before time grows, before a report, at the end of a row. */
void soft_series_end(soft_check *check);

#endif /* SOFT_CHECK_SERIES_H */
