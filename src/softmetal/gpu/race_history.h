/* race_history.h: what came before each signal of an event.
 *
 * Owns:    one clock for each value; an event owns its history.
 * Calls:   race_clock.h.
 * Threads: behind the lock of races.c.
 */
#ifndef SOFT_RACE_HISTORY_H
#define SOFT_RACE_HISTORY_H

#include <stdint.h>

#include "softmetal/gpu/race_clock.h"

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
