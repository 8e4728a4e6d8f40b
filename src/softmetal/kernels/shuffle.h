/* shuffle.h: the order of threads and threadgroups, which Metal leaves open and SOFTMETAL_SEED
 * decides.
 *
 * Owns:    nothing.
 * Calls:   seed.h.
 * Threads: any; a random state is one OS thread's.
 */
#ifndef SOFT_SHUFFLE_H
#define SOFT_SHUFFLE_H

#include <stdint.h>

#include "softmetal/seed.h"

typedef struct soft_shuffle {
    soft_order order;
    uint64_t seed;  /* of this launch */
    uint64_t count; /* of threadgroups */
    uint64_t factor,
        distance; /* a random order of them: index * factor + distance, modulo count */
} soft_shuffle;

void soft_shuffle_begin(soft_shuffle *shuffle, uint64_t count);

/* Which threadgroup runs as the index-th. */
uint64_t soft_shuffle_group(const soft_shuffle *shuffle, uint64_t index);
/* Where the choices within this threadgroup begin: not a matter of the OS thread. */
uint64_t soft_shuffle_state(const soft_shuffle *shuffle, uint64_t group);
/* One bit of a mask that is not 0, its number: not the next one in turn. */
unsigned soft_shuffle_bit(const soft_shuffle *shuffle, uint64_t *state, uint32_t mask);

#endif /* SOFT_SHUFFLE_H */
