/* check_state.c: see check_state.h.
 *
 * Owns:    nothing.
 * Calls:   check_order.h; `abandon` of the launch.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"
#include "softmetal/fiber.h"

#include <stdlib.h>

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
