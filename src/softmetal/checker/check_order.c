/* check_order.c: see check_order.h.
 *
 * Owns:    the records of threadgroups, the pairs of lanes.
 * Calls:   malloc.
 * Threads: one at a time.
 */
#include "softmetal/checker/check_order.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/host.h"

#define MEM_DEVICE 1 /* SPEC Metal Shading Language Specification: mem_flags */
#define MEM_THREADGROUP 2
#define MEM_TEXTURE 4

void
soft_order_free(soft_order *order)
{
    free(order->groups);
    for (int i = 0; i < SOFT_MOST_SIMDGROUPS; i++) {
        free(order->lanes[i].pairs);
    }
    *order = (soft_order){0};
}

bool
soft_order_group(soft_order *order, const soft_u32 position[3])
{
    if (!soft_grow((void **)&order->groups, order->group_count, &order->group_room,
                   sizeof *order->groups)) {
        return false;
    }
    order->now += 1;
    order->group_start = order->now;
    order->ordered[SOFT_THREADGROUP_MEMORY] = order->now;
    order->ordered[SOFT_DEVICE_MEMORY] = order->ordered[SOFT_TEXTURE_MEMORY] = order->now;
    order->has_fenced = false;
    for (int i = 0; i < SOFT_MOST_SIMDGROUPS; i++) {
        order->lanes[i].met = order->now;
        order->lanes[i].is_split = false;
    }
    order->groups[order->group_count++] =
        (soft_group_record){order->now, 0, {position[0], position[1], position[2]}};
    return true;
}

void
soft_order_barrier(soft_order *order, soft_u32 mem_flags)
{
    order->now += 1;
    order->met = order->now;
    if (mem_flags & MEM_THREADGROUP) {
        order->ordered[SOFT_THREADGROUP_MEMORY] = order->now;
    }
    if (mem_flags & MEM_DEVICE || order->has_fenced) {
        order->ordered[SOFT_DEVICE_MEMORY] = order->now;
    }
    if (mem_flags & MEM_TEXTURE || order->has_fenced) {
        order->ordered[SOFT_TEXTURE_MEMORY] = order->now;
    }
    order->has_fenced = false;
}

/* From now on each pair of lanes has a time of its own.  False: no memory. */
static bool
split_lanes(soft_lanes *lanes)
{
    if (lanes->pairs == NULL) {
        lanes->pairs = malloc(sizeof *lanes->pairs * SOFT_SIMD_WIDTH);
    }
    if (lanes->pairs == NULL) {
        return false;
    }
    for (int i = 0; i < SOFT_SIMD_WIDTH; i++) {
        for (int j = 0; j < SOFT_SIMD_WIDTH; j++) {
            lanes->pairs[i][j] = lanes->met;
        }
    }
    lanes->is_split = true;
    return true;
}

/* Every lane that arrived now shares the joined clock. */
static void
join_pairs(soft_lanes *lanes, soft_u32 came, uint32_t now)
{
    uint32_t known[SOFT_SIMD_WIDTH] = {0};
    for (soft_u32 rest = came; rest != 0; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        for (int j = 0; j < SOFT_SIMD_WIDTH; j++) {
            known[j] = lanes->pairs[i][j] > known[j] ? lanes->pairs[i][j] : known[j];
        }
    }
    for (soft_u32 rest = came; rest != 0; rest &= rest - 1) {
        known[__builtin_ctz(rest)] = now;
    }
    for (soft_u32 rest = came; rest != 0; rest &= rest - 1) {
        memcpy(lanes->pairs[__builtin_ctz(rest)], known, sizeof known);
    }
}

void
soft_order_meet(soft_order *order, soft_u32 simdgroup, soft_u32 came, soft_u32 all)
{
    soft_lanes *lanes = &order->lanes[simdgroup % SOFT_MOST_SIMDGROUPS];
    order->now += 1;
    if ((came & all) == all || (!lanes->is_split && !split_lanes(lanes))) {
        lanes->met =
            order->now; /* without memory: too much is ordered, and nothing is invented */
        lanes->is_split = false;
        return;
    }
    join_pairs(lanes, came, order->now);
}

void
soft_order_fence(soft_order *order)
{
    order->now += 1;
    order->has_fenced = true;
    if (order->group_count != 0) {
        order->groups[order->group_count - 1].fenced = order->now;
    }
}

const soft_group_record *
soft_order_group_of(const soft_order *order, uint32_t time)
{
    size_t low = 0, high = order->group_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (order->groups[middle].start <= time) {
            low = middle;
        }
        else {
            high = middle;
        }
    }
    return &order->groups[low];
}

bool
soft_order_is_fenced(const soft_order *order, soft_mark mark)
{
    const soft_group_record *now = &order->groups[order->group_count - 1];
    return now->fenced != 0 && soft_order_group_of(order, mark.time)->fenced > mark.time;
}
