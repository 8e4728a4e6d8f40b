/* lane.h: the C side of one command queue: a lock, an order, a limit.
 *
 * Owns:      the order of its command buffers (borrowed pointers) and the count in flight.
 * Calls:     races.h.
 * Threads:   any; every field behind `lock`; `has_worker` may be read without it.
 * Invariant: a lane outlives its queue object as long as its worker runs.
 */
#ifndef SOFT_LANE_H
#define SOFT_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "softmetal/gpu/races.h"

/* One command buffer's place in a lane. */
typedef struct soft_slot {
    TAILQ_ENTRY(soft_slot) links;
    void *owner;    /* borrowed: the command buffer */
    bool is_placed; /* enqueued and not yet taken by the worker */
    bool is_committed;
} soft_slot;

/* Slots stand in the order of enqueue; the worker takes the first one once it is committed.
 *
 *     commandBuffer: in_flight + 1; blocks at `limit`
 *          |
 *          | enqueue, or commit
 *          v
 *        last ---> [slot] <--> [slot] <--> ... <--> [slot] <--- first
 *                                                      |
 *                                                      | is_committed
 *                                                      v
 *        completed: in_flight - 1 <--------------- the worker (has_worker)
 *                                                    seed, random: the order of passes
 *                                                    races: what comes before what
 */
typedef struct soft_lane {
    pthread_mutex_t lock;
    /* the worker alone waits: something is committed, or the process exits */
    pthread_cond_t work;
    pthread_cond_t room; /* each place that is left wakes one who waits for it */
    long references;
    TAILQ_HEAD(, soft_slot) slots;
    uint64_t limit, in_flight; /* command buffers that exist and have not completed */
    bool has_worker;
    bool is_closed;              /* the queue object is gone */
    bool is_ignored;             /* what it is given, after an error; the worker's own */
    uint64_t seed, random;       /* of the shuffle, the worker's own */
    soft_race_queue *races;      /* owned; NULL: not watched */
    uint64_t serial;             /* in the order of creation, for names and seeds */
    LIST_ENTRY(soft_lane) lanes; /* all of them */
} soft_lane;

soft_lane *soft_lane_new(uint64_t limit); /* owned (+1), or NULL */
void soft_lane_retain(soft_lane *lane);
void soft_lane_release(soft_lane *lane);

/* Take one of `limit` places, waiting for it until `deadline_ns`.  False if the time is up. */
bool soft_lane_enter(soft_lane *lane, uint64_t deadline_ns);
void soft_lane_leave(soft_lane *lane);
void soft_lane_make_room(soft_lane *lane); /* leaves; `lock` held */

void soft_lane_place(soft_lane *lane, soft_slot *slot);  /* at the end; `lock` held */
void soft_lane_remove(soft_lane *lane, soft_slot *slot); /* `lock` held */

/* The worker sleeps until the deadline.  False, at once, when the process exits. */
bool soft_lane_sleep(soft_lane *lane, uint64_t deadline_ns);
void soft_lane_wake_all(void); /* every lane: the process exits */

#endif /* SOFT_LANE_H */
