/* event.h: a number that only grows, and those who wait for it.
 *
 * Owns:    the values, behind one lock for all events; what came before each signal.
 * Threads: any.  Not to be called in a forked child, except soft_event_value and _release.
 * Invariant: component n of a clock says that the passes of that queue up to this number come
 *            before.
 */
#ifndef SOFT_EVENT_H
#define SOFT_EVENT_H

#include <stddef.h>
#include <stdint.h>

/* ---- a clock: what comes before a moment, as far as is known ---- */

/* The CPU and 63 queues at a time; races of further queues are missed. */
#define SOFT_RACE_COMPONENTS 64

typedef struct soft_race_clock {
    uint64_t at[SOFT_RACE_COMPONENTS]; /* 0: the CPU */
} soft_race_clock;

/* From now on `clock` knows what `other` knows. */
static inline void
soft_race_clock_join(soft_race_clock *clock, const soft_race_clock *other)
{
    for (int index = 0; index < SOFT_RACE_COMPONENTS; index++) {
        if (clock->at[index] < other->at[index]) {
            clock->at[index] = other->at[index];
        }
    }
}

/* ---- an event ---- */

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

/* The event is signalled with `value` at `clock`.  With no memory the signal is forgotten, and a wait
 * for it learns nothing. */
void soft_event_note_signal(soft_event *event, uint64_t value, const soft_race_clock *clock);
/* A wait for `value` is over: `clock` learns from the first signal that satisfied it, not from
 * the latest, since which one is the latest is a matter of time. */
void soft_event_learn_signal(const soft_event *event, uint64_t value, soft_race_clock *clock);

#define SOFT_FENCE_UPDATES 8

/* The last passes that updated a fence; the event is the fence's token. */
typedef struct soft_fence_updates {
    int queue[SOFT_FENCE_UPDATES]; /* a component of clocks; 0: none */
    uint64_t number[SOFT_FENCE_UPDATES];
    size_t next;
} soft_fence_updates;

soft_fence_updates *soft_event_fence_updates(soft_event *event);

#endif /* SOFT_EVENT_H */
