/* threadgroup_memory.h: the memory that the threads of one threadgroup share.
 *
 * Owns:    the bytes; each threadgroup that runs uses them anew, and finds what the one before
 *          left, as on a GPU (SOFTMETAL_POISON=1: bytes that stand out).
 * Calls:   check.h.
 * Threads: the OS thread that runs the threadgroup.
 */
#ifndef SOFT_THREADGROUP_MEMORY_H
#define SOFT_THREADGROUP_MEMORY_H

#include <stdbool.h>

#include "metal_dlpack/msl/include/softmetal_kernel.h"

#define SOFT_MOST_PLACES 128          /* variables and arguments of one kernel */
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
    _Alignas(64) soft_u8 bytes[2 * SOFT_MOST_THREADGROUP_NBYTES];
} soft_threadgroup_memory;

void soft_threadgroup_memory_clear(soft_threadgroup_memory *memory); /* no place is given */

/* The place of a variable or an argument, the same for each thread.  NULL: together they would
 * pass SOFT_MOST_THREADGROUP_NBYTES, or they are too many. */
void *soft_threadgroup_memory_place(soft_threadgroup_memory *memory, soft_u32 number,
                                    bool is_argument, soft_u64 nbytes, soft_u64 alignment);

#endif /* SOFT_THREADGROUP_MEMORY_H */
