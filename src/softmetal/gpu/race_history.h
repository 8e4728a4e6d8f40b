/* race_history.h: what came before each signal of an event.
 *
 * Owns:    one clock for each value; an event owns its history.
 * Threads: behind the lock of races.c.
 * Invariant: component n of a clock says that the passes of that queue up to this number come
 *          before.
 */
#ifndef SOFT_RACE_HISTORY_H
#define SOFT_RACE_HISTORY_H

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

typedef struct soft_race_history soft_race_history;

/* The event is signalled with `value` at `clock`.  Makes `*place` if it is NULL; with no memory
 * the signal is forgotten, and a wait for it learns nothing. */
void soft_race_history_append(soft_race_history **place, uint64_t value,
                              const soft_race_clock *clock);
/* A wait for `value` is over: `clock` learns from the first signal that satisfied it, not from
 * the latest, since which one is the latest is a matter of time. */
void soft_race_history_learn(const soft_race_history *history, uint64_t value,
                             soft_race_clock *clock);
void soft_race_history_free(soft_race_history *history); /* NULL is allowed */

#endif /* SOFT_RACE_HISTORY_H */
