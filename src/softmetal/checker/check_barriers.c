/* check_barriers.c: who of a threadgroup waits where.
 *
 * Owns:    nothing.
 * Calls:   check_order.h, check_report.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"
#include "softmetal/fiber.h"

#include <stdio.h>
#include <string.h>

void
soft_barriers_group(soft_check *check, const soft_u32 position[3])
{
    const soft_launch *launch = check->launch.launch;
    check->thread_count = 1;
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 rest = launch->grid[axis] - position[axis] * launch->group[axis];
        check->thread_count *= rest < launch->group[axis] ? rest : launch->group[axis];
    }
    check->wait_flags = ~0u;
    memset(check->sites, 0, check->thread_count * sizeof check->sites[0]);
    memset(check->has_returned, 0, check->thread_count);
}

void
soft_barriers_wait(soft_check *check, soft_u32 mem_flags, const void *site)
{
    check->sites[check->watch->thread] = site;
    check->wait_flags &= mem_flags;
}

SOFT_ON_FIBER static void
report(soft_check *check, const char *text, soft_u32 waits, soft_u32 other, int count)
{
    soft_finding *finding = soft_findings_add(&check->findings);
    if (finding != NULL) {
        snprintf(finding->text, sizeof finding->text, "%s", text);
        finding->at[0] = soft_at_thread(check, waits, check->sites[waits]);
        finding->at[1] = soft_at_thread(check, other, check->sites[other]);
        finding->count = count;
    }
    soft_check_stop(check);
}

/* Two threads that do not wait at the same place; the text names the returned one itself. */
SOFT_ON_FIBER static void
report_returned(soft_check *check, soft_u32 waits, soft_u32 returned)
{
    soft_at at = soft_at_thread(check, returned, NULL);
    char text[200];
    snprintf(text, sizeof text,
             "a thread waits at a threadgroup_barrier that thread (%u,%u,%u) never reaches: it "
             "has returned",
             at.thread[0], at.thread[1], at.thread[2]);
    report(check, text, waits, returned, 1);
}

SOFT_ON_FIBER void
soft_barriers_open(soft_check *check)
{
    soft_u32 first = 0;
    while (check->has_returned[first]) {
        first += 1;
    }
    for (soft_u32 i = 0; i < check->thread_count; i++) {
        if (check->has_returned[i]) {
            report_returned(check, first, i);
        }
        if (check->sites[i] != check->sites[first]) {
            report(check, "two threads of a threadgroup wait at different barriers", first, i,
                   2);
        }
    }
    soft_order_barrier(&check->order, check->wait_flags);
    check->wait_flags = ~0u;
}

void
soft_barriers_meet(soft_check *check, soft_u32 simdgroup, soft_u32 lanes)
{
    soft_u32 count = check->thread_count - simdgroup * SOFT_SIMD_WIDTH;
    soft_u32 all = count >= SOFT_SIMD_WIDTH ? ~0u : (1u << count) - 1;
    soft_order_meet(&check->order, simdgroup, lanes, all);
}
