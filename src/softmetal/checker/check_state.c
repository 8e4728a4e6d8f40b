/* check_state.c: see check_state.h.
 *
 * Owns:    nothing.
 * Calls:   check_order.h; `abandon` of the launch.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"
#include "softmetal/fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static soft_at
at_index(const soft_check *check, soft_u32 index, const soft_u32 group[3], uint32_t offset)
{
    const soft_launch *launch = check->launch.launch;
    soft_at at = {.offset = offset};
    for (int axis = 0; axis < 3; axis++) {
        soft_u32 rest = launch->grid[axis] - group[axis] * launch->group[axis];
        soft_u32 size = rest < launch->group[axis] ? rest : launch->group[axis];
        at.group[axis] = group[axis];
        at.thread[axis] = index % size;
        index /= size;
    }
    return at;
}

soft_at
soft_at_thread(const soft_check *check, soft_u32 index, const void *site)
{
    const soft_order *order = &check->order;
    return at_index(check, index, order->groups[order->group_count - 1].position,
                    soft_check_offset(check, site));
}

soft_at
soft_at_running(const soft_check *check, const void *site)
{
    return soft_at_thread(check, check->watch->thread, site);
}

soft_at
soft_at_mark(const soft_check *check, soft_mark mark)
{
    return at_index(check, soft_mark_thread(mark),
                    soft_order_group_of(&check->order, mark.time)->position,
                    soft_mark_offset(mark));
}

SOFT_ON_FIBER _Noreturn void
soft_check_stop(soft_check *check)
{
    check->launch.abandon();
    abort(); /* abandon does not return */
}

/* ---- who of a threadgroup waits where ---- */

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
