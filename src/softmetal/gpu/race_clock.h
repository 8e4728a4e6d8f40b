/* race_clock.h: a vector clock: what comes before a moment, as far as is known.
 *
 * Owns:      nothing.
 * Threads:   a clock behind the lock of races.c.
 * Invariant: component n says that the passes of that queue up to this number come before.
 */
#ifndef SOFT_RACE_CLOCK_H
#define SOFT_RACE_CLOCK_H

#include <stdint.h>

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

#endif /* SOFT_RACE_CLOCK_H */
