/* placement.h: where threads and variables of a threadgroup lie, and in which order threads run.
 *
 * Owns:    the memory that the threads of one threadgroup share.  Each threadgroup that runs uses it
 *          anew, and finds what the one before left, as on a GPU (SOFTMETAL_POISON=1: bytes that
 *          stand out).
 * Calls:   settings.h for the order; check.h, which is told of each place.
 * Threads: any; a soft_threadgroup_memory and a random state are one OS thread's.
 */
#ifndef SOFT_PLACEMENT_H
#define SOFT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "softmetal/checker/checked_launch.h"
#include "softmetal/settings.h"
#include "softmetal/shim/softmetal_kernel.h"

typedef struct soft_placement {
    const soft_launch *launch; /* borrowed */
    soft_u32 thread_count;
    soft_u32 size[3];          /* smaller than launch->group at the far edges */
    soft_u32 position[3];      /* among the threadgroups */
    soft_u32 first_in_grid[3]; /* of its threads */
} soft_placement;

/* Begin the threadgroup with this number: they count along x first, then along y and z. */
void soft_placement_begin(soft_placement *placement, const soft_launch *launch,
                          uint64_t number);
/* All that a thread knows, by its index in the threadgroup. */
void soft_placement_of(const soft_placement *placement, soft_u32 index, soft_thread *thread);
/* From such a thread on to the one that is `count` further in its row.  False: the row has fewer. */
bool soft_placement_advance(soft_thread *thread, soft_u32 count);

/* ---- memory of a threadgroup ---- */

#define SOFT_BETWEEN_PLACES_NBYTES 64 /* of nobody: the checker sees an overrun there */

typedef struct soft_place {
    soft_u32 number; /* of a variable; the index of an argument */
    bool is_argument;
    soft_u8 *address;
} soft_place;

typedef struct soft_threadgroup_memory {
    soft_u64 given_nbytes; /* of places */
    soft_u64 end;          /* where the next one may begin */
    soft_u32 count;
    bool is_checked, is_poisoned;
    soft_place places[SOFT_MOST_PLACES];
    _Alignas(128) soft_u8 bytes[2 * SOFT_MOST_THREADGROUP_NBYTES]; /* the banks begin there */
} soft_threadgroup_memory;

void soft_threadgroup_memory_clear(soft_threadgroup_memory *memory); /* no place is given */

/* The place of a variable or an argument, the same for each thread.  NULL: together they would
 * pass SOFT_MOST_THREADGROUP_NBYTES, or they are too many. */
void *soft_threadgroup_memory_place(soft_threadgroup_memory *memory, soft_u32 number,
                                    bool is_argument, soft_u64 nbytes, soft_u64 alignment);

/* ---- the order in which threads run ---- */

typedef struct soft_shuffle {
    soft_seed_kind order;
    uint64_t seed;  /* of this launch */
    uint64_t count; /* of threadgroups */
    uint64_t factor,
        distance; /* a random order of them: index * factor + distance, modulo count */
} soft_shuffle;

void soft_shuffle_begin(soft_shuffle *shuffle, uint64_t count);

/* Which threadgroup runs as the index-th. */
uint64_t soft_shuffle_group(const soft_shuffle *shuffle, uint64_t index);
/* One bit of a mask that is not 0, its number: not the next one in turn. */
unsigned soft_shuffle_bit(const soft_shuffle *shuffle, uint64_t *state, uint32_t mask);

#endif /* SOFT_PLACEMENT_H */
