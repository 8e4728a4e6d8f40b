/* event.h: a number that only grows, and those who wait for it.
 *
 * Owns:    the values, behind one lock for all events.
 * Threads: any.  Not to be called in a forked child, except soft_event_value and _release.
 */
#ifndef SOFT_EVENT_H
#define SOFT_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include "softmetal/gpu/race_history.h"

typedef struct soft_event soft_event;

typedef enum { SOFT_EVENT_REACHED, SOFT_EVENT_LATE, SOFT_EVENT_EXIT } soft_event_outcome;

soft_event *soft_event_new(void); /* owned (+1), or NULL; value 0 */
soft_event *soft_event_retain(soft_event *event);
void soft_event_release(soft_event *event);

uint64_t soft_event_value(soft_event *event);
/* A smaller value changes nothing. */
void soft_event_raise(soft_event *event, uint64_t value);
/* Wait until the value is at least `value`, the time is up, or the process exits. */
soft_event_outcome soft_event_wait(soft_event *event, uint64_t value, uint64_t deadline_ns);
void soft_event_wake_all(void);

/* ---- for races.c, behind its lock ---- */

/* Owned by the event once it is not NULL. */
soft_race_history **soft_event_history(soft_event *event);

#define SOFT_FENCE_UPDATES 8

/* The last passes that updated a fence; the event is the fence's token. */
typedef struct soft_fence_updates {
    int queue[SOFT_FENCE_UPDATES]; /* a component of clocks; 0: none */
    uint64_t number[SOFT_FENCE_UPDATES];
    size_t next;
} soft_fence_updates;

soft_fence_updates *soft_event_fence_updates(soft_event *event);

#endif /* SOFT_EVENT_H */
