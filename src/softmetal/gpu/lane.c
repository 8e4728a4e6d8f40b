/* lane.c: places and limits of command queues.
 *
 * Owns:    the list of all lanes, behind `list_lock`.
 * Calls:   process_flags.h, races.h.
 * Threads: any.  Order of locks: list_lock before the lock of a lane.
 */
#include "softmetal/gpu/lane.h"

#include <stdlib.h>

#include "softmetal/monotonic.h"
#include "softmetal/process_flags.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static soft_lane *first_lane;
static uint64_t next_serial;

soft_lane *
soft_lane_new(uint64_t limit)
{
    soft_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) {
        return NULL;
    }
    pthread_mutex_init(&lane->lock, NULL);
    soft_monotonic_init_cond(&lane->changed);
    lane->references = 1;
    lane->limit = limit;
    pthread_mutex_lock(&list_lock);
    lane->serial = ++next_serial;
    lane->next_lane = first_lane;
    if (first_lane != NULL) {
        first_lane->previous_lane = lane;
    }
    first_lane = lane;
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
    if (lane->next_lane != NULL) {
        lane->next_lane->previous_lane = lane->previous_lane;
    }
    if (lane->previous_lane != NULL) {
        lane->previous_lane->next_lane = lane->next_lane;
    }
    else {
        first_lane = lane->next_lane;
    }
    pthread_mutex_unlock(&list_lock);
    soft_race_queue_free(lane->races);
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

bool
soft_lane_enter(soft_lane *lane, uint64_t deadline_ns)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->in_flight >= lane->limit && soft_monotonic_ns() < deadline_ns) {
        soft_monotonic_wait(&lane->changed, &lane->lock, deadline_ns);
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
    lane->in_flight -= 1;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->lock);
}

void
soft_lane_place(soft_lane *lane, soft_slot *slot)
{
    slot->next = NULL;
    slot->previous = lane->last;
    if (lane->last != NULL) {
        lane->last->next = slot;
    }
    else {
        lane->first = slot;
    }
    lane->last = slot;
    slot->is_placed = true;
}

void
soft_lane_remove(soft_lane *lane, soft_slot *slot)
{
    if (slot->previous != NULL) {
        slot->previous->next = slot->next;
    }
    else {
        lane->first = slot->next;
    }
    if (slot->next != NULL) {
        slot->next->previous = slot->previous;
    }
    else {
        lane->last = slot->previous;
    }
    slot->next = slot->previous = NULL;
    slot->is_placed = false;
}

bool
soft_lane_sleep(soft_lane *lane, uint64_t deadline_ns)
{
    pthread_mutex_lock(&lane->lock);
    while (!soft_process_is_exiting() && soft_monotonic_ns() < deadline_ns) {
        soft_monotonic_wait(&lane->changed, &lane->lock, deadline_ns);
    }
    pthread_mutex_unlock(&lane->lock);
    return !soft_process_is_exiting();
}

void
soft_lane_wake_all(void)
{
    pthread_mutex_lock(&list_lock);
    for (soft_lane *lane = first_lane; lane != NULL; lane = lane->next_lane) {
        pthread_mutex_lock(&lane->lock);
        pthread_cond_broadcast(&lane->changed);
        pthread_mutex_unlock(&lane->lock);
    }
    pthread_mutex_unlock(&list_lock);
}
