/* lane.c: places and limits of command queues.
 *
 * Owns:    the list of all lanes, behind `list_lock`.
 * Calls:   host.h, races.h.
 * Threads: any.  Order of locks: list_lock before the lock of a lane.
 */
#include "softmetal/gpu/lane.h"

#include <stdlib.h>

#include "softmetal/host.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, soft_lane) lanes = LIST_HEAD_INITIALIZER(lanes);
static uint64_t next_serial;

soft_lane *
soft_lane_new(uint64_t limit)
{
    soft_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) {
        return NULL;
    }
    pthread_mutex_init(&lane->lock, NULL);
    soft_monotonic_init_cond(&lane->work);
    soft_monotonic_init_cond(&lane->room);
    TAILQ_INIT(&lane->slots);
    lane->references = 1;
    lane->limit = limit;
    pthread_mutex_lock(&list_lock);
    lane->serial = ++next_serial;
    LIST_INSERT_HEAD(&lanes, lane, lanes);
    pthread_mutex_unlock(&list_lock);
    if (soft_races_are_watched()) {
        lane->races = soft_race_queue_new(lane->serial);
    }
    return lane;
}

void
soft_lane_retain(soft_lane *lane)
{
    __atomic_add_fetch(&lane->references, 1, __ATOMIC_RELAXED);
}

void
soft_lane_release(soft_lane *lane)
{
    if (__atomic_sub_fetch(&lane->references, 1, __ATOMIC_ACQ_REL) > 0 ||
        soft_process_is_forked()) {
        return; /* a forked child may find the locks taken for ever: the lane stays */
    }
    pthread_mutex_lock(&list_lock);
    LIST_REMOVE(lane, lanes);
    pthread_mutex_unlock(&list_lock);
    soft_race_queue_free(lane->races);
    pthread_cond_destroy(&lane->work);
    pthread_cond_destroy(&lane->room);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

bool
soft_lane_enter(soft_lane *lane, uint64_t deadline_ns)
{
    /* mutant survives (dropped lock): ThreadSanitizer sees it */
    pthread_mutex_lock(&lane->lock);
    while (lane->in_flight >= lane->limit && soft_monotonic_ns() < deadline_ns) {
        soft_monotonic_wait(&lane->room, &lane->lock, deadline_ns);
    }
    bool entered = lane->in_flight < lane->limit;
    lane->in_flight += entered;
    pthread_mutex_unlock(&lane->lock);
    return entered;
}

void
soft_lane_leave(soft_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    soft_lane_make_room(lane);
    pthread_mutex_unlock(&lane->lock);
}

void
soft_lane_make_room(soft_lane *lane)
{
    lane->in_flight -= 1;
    pthread_cond_signal(&lane->room);
}

void
soft_lane_place(soft_lane *lane, soft_slot *slot)
{
    TAILQ_INSERT_TAIL(&lane->slots, slot, links);
    slot->is_placed = true;
}

void
soft_lane_remove(soft_lane *lane, soft_slot *slot)
{
    TAILQ_REMOVE(&lane->slots, slot, links);
    slot->is_placed = false;
}

bool
soft_lane_sleep(soft_lane *lane, uint64_t deadline_ns)
{
    pthread_mutex_lock(&lane->lock);
    while (!soft_process_is_exiting() && soft_monotonic_ns() < deadline_ns) {
        soft_monotonic_wait(&lane->work, &lane->lock, deadline_ns);
    }
    pthread_mutex_unlock(&lane->lock);
    return !soft_process_is_exiting();
}

void
soft_lane_wake_all(void)
{
    pthread_mutex_lock(&list_lock);
    soft_lane *lane;
    LIST_FOREACH(lane, &lanes, lanes)
    {
        pthread_mutex_lock(&lane->lock);
        pthread_cond_signal(&lane->work);
        pthread_mutex_unlock(&lane->lock);
    }
    pthread_mutex_unlock(&list_lock);
}
