/* check_order.h: which accesses of a launch are ordered by what the kernel waits for.
 *
 * Time is a number that grows whenever something is ordered: a threadgroup begins, a barrier
 * opens, lanes leave a SIMD-group function together, a thread fences.  An access is ordered before
 * the running thread's next one if
 *     - the same thread made it, or
 *     - a threadgroup_barrier with the flag of that memory has opened since, or
 *     - both threads are lanes of a SIMD-group that have met since, or
 *     - it is of another threadgroup, which fenced afterwards, and this one has fenced since.
 * So one number in a mark tells all: what is older than the threadgroup is another's.
 *
 * Owns:    the times, a record for each threadgroup that began, what the lanes know of each other.
 * Calls:   check_shadow.h for marks.
 * Threads: one at a time.
 */
#ifndef SOFT_CHECK_ORDER_H
#define SOFT_CHECK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softmetal/checker/check_shadow.h"
#include "softmetal/shim/softmetal_kernel.h"

#define SOFT_MOST_SIMDGROUPS 32

typedef struct soft_group_record {
    uint32_t start;
    uint32_t fenced; /* the time of its last fence; 0: none */
    uint32_t position[3];
} soft_group_record;

/* What the lanes of a SIMD-group know of each other: the time of the last meeting.  All the same as
 * long as all come each time; else a number for each pair. */
typedef struct soft_lanes {
    uint32_t met;
    uint32_t (*pairs)[SOFT_SIMD_WIDTH]; /* owned; [i][j]: what lane i knows of lane j */
    bool is_split;                      /* pairs counts, not met */
} soft_lanes;

enum { SOFT_THREADGROUP_MEMORY, SOFT_DEVICE_MEMORY, SOFT_TEXTURE_MEMORY };

typedef struct soft_order {
    uint32_t now;
    uint32_t group_start;
    uint32_t ordered[3]; /* by kind of memory: when a barrier last opened for it */
    uint32_t met;        /* when a barrier last opened, whatever its flags */
    bool has_fenced;     /* since the last barrier */
    soft_group_record *groups;
    size_t group_count, group_room;
    soft_lanes lanes[SOFT_MOST_SIMDGROUPS];
} soft_order;

void soft_order_free(soft_order *order);
bool soft_order_group(soft_order *order, const soft_u32 position[3]); /* false: no memory */
void soft_order_barrier(soft_order *order, soft_u32 mem_flags);
void soft_order_meet(soft_order *order, soft_u32 simdgroup, soft_u32 lanes, soft_u32 all);
void soft_order_fence(soft_order *order);

/* The threadgroup that was running at that time. */
const soft_group_record *soft_order_group_of(const soft_order *order, uint32_t time);
bool soft_order_is_fenced(const soft_order *order, soft_mark mark);

static inline bool
soft_order_is_before(const soft_order *order, soft_mark mark, uint32_t thread, int memory)
{
    if (mark.time < order->group_start) {
        return mark.time == 0 || memory == SOFT_THREADGROUP_MEMORY ||
               soft_order_is_fenced(order, mark);
    }
    uint32_t other = soft_mark_thread(mark);
    if (other == thread || mark.time < order->ordered[memory]) {
        return true;
    }
    if (other / SOFT_SIMD_WIDTH != thread / SOFT_SIMD_WIDTH) {
        return false;
    }
    const soft_lanes *lanes = &order->lanes[thread / SOFT_SIMD_WIDTH];
    uint32_t met = lanes->is_split
                       ? lanes->pairs[thread % SOFT_SIMD_WIDTH][other % SOFT_SIMD_WIDTH]
                       : lanes->met;
    return mark.time < met;
}

#endif /* SOFT_CHECK_ORDER_H */
