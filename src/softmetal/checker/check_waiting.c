/* check_waiting.c: who waits where, what that orders, and who does not come; see check_state.h.
 *
 * Owns:    nothing.
 * Calls:   check_order.h, check_state.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"

#include <string.h>

/* One thread waits, and another does not wait there. */
SOFT_ON_FIBER static _Noreturn void
stop_for_waiting(soft_check *check, soft_found kind, soft_at waits, soft_at other)
{
    soft_finding found = {.kind = kind, .at = {waits, other}, .count = 2};
    (void)soft_findings_add(&check->findings, &found);
    soft_check_stop(check);
}

/* The other has returned, so it is nowhere: the finding names it. */
SOFT_ON_FIBER static _Noreturn void
stop_for_returned(soft_check *check, soft_found kind, soft_at waits, soft_u32 returned)
{
    soft_at at = soft_at_thread(check, returned, NULL);
    soft_finding found = {.kind = kind, .at = {waits}, .count = 1, .has_returned = true};
    memcpy(found.returned, at.thread, sizeof found.returned);
    (void)soft_findings_add(&check->findings, &found);
    soft_check_stop(check);
}

SOFT_ON_FIBER const void *
soft_waiting_site(soft_check *check)
{
    soft_u32 first = 0;
    while (check->has_returned[first]) {
        first += 1;
    }
    const void *site = check->sites[first];
    soft_at waits = soft_at_thread(check, first, site);
    for (soft_u32 i = 0; i < check->thread_count; i++) {
        if (check->has_returned[i]) {
            stop_for_returned(check, SOFT_FOUND_BARRIER, waits, i);
        }
        if (check->sites[i] != site) {
            stop_for_waiting(check, SOFT_FOUND_BARRIER, waits,
                             soft_at_thread(check, i, check->sites[i]));
        }
    }
    return site;
}

SOFT_ON_FIBER void
soft_waiting_lanes(soft_check *check, soft_u32 simdgroup, soft_u32 lanes, soft_u32 others,
                   const void *const *sites)
{
    soft_u32 missing = soft_all_lanes(check, simdgroup) & ~lanes;
    if (missing == 0) {
        return;
    }
    soft_u32 first = simdgroup * SOFT_SIMD_WIDTH;
    soft_u32 lane = (soft_u32)__builtin_ctz(lanes), other = (soft_u32)__builtin_ctz(missing);
    soft_at waits = soft_at_thread(check, first + lane, sites[lane]);
    if (check->has_returned[first + other]) {
        stop_for_returned(check, SOFT_FOUND_LANES, waits, first + other);
    }
    const void *site = (others >> other & 1) != 0 ? sites[other] : check->sites[first + other];
    stop_for_waiting(check, SOFT_FOUND_LANES, waits,
                     soft_at_thread(check, first + other, site));
}

SOFT_ON_FIBER void
soft_waiting_barrier(soft_check *check, const void *site)
{
    (void)site;
    soft_order_barrier(&check->order, check->wait_flags);
}

SOFT_ON_FIBER void
soft_waiting_meeting(soft_check *check, soft_u32 simdgroup, soft_u32 lanes, const void *site)
{
    (void)site;
    soft_order_meet(&check->order, simdgroup, lanes, soft_all_lanes(check, simdgroup));
}

SOFT_ON_FIBER void
soft_waiting_fence(soft_check *check)
{
    soft_order_fence(&check->order);
}
