/* process_flags.c: has the process forked, does it exit?
 *
 * Owns:    the two flags (atomic).
 * Threads: any.
 */
#include "softmetal/process_flags.h"

static int forked, exiting;

bool
soft_process_is_forked(void)
{
    return __atomic_load_n(&forked, __ATOMIC_RELAXED) != 0;
}

bool
soft_process_is_exiting(void)
{
    return __atomic_load_n(&exiting, __ATOMIC_ACQUIRE) != 0;
}

void
soft_process_mark_forked(void)
{
    __atomic_store_n(&forked, 1, __ATOMIC_RELAXED);
}

void
soft_process_mark_exiting(void)
{
    __atomic_store_n(&exiting, 1, __ATOMIC_RELEASE);
}
