/* check_count.h: a checked launch that counts: which accesses belong together, and what they sum up to.
 *
 * The n-th time that each lane of a SIMD-group comes to one access belongs together.  n counts from the
 * last place where all lanes of the SIMD-group met: a threadgroup_barrier, or a SIMD-group function.
 * So lanes that leave a loop earlier than others are missing in its later rounds,
 * and lanes in two branches are never together.
 *
 * An image that counts has a soft_counted for each access (softmetal_kernel.h).  It finds by itself most
 * that goes on as a series; the rest asks.  Once the lanes have met, or returned, all is summed up.
 *
 * Owns:    check->count.
 * Calls:   check_memory.c for what an address is part of, count_shape.h, counts.h.
 * Threads: the OS thread that runs the launch, threads in the order of their indices.
 */
#ifndef SOFT_CHECK_COUNT_H
#define SOFT_CHECK_COUNT_H

#include "softmetal/checker/check_state.h"

/* What soft_observers tells; at the end all that was counted is filed. */
bool soft_count_begin(soft_check *check);
void soft_count_group(soft_check *check);
void soft_count_place(soft_check *check, soft_range *range);
void soft_count_turn(soft_check *check, soft_u32 count);
void soft_count_barrier(soft_check *check, const void *site);
void soft_count_meeting(soft_check *check, soft_u32 simdgroup, soft_u32 lanes,
                        const void *site);
void soft_count_end(soft_check *check);
void soft_count_close(soft_check *check);

/* What the image asks. */
void soft_count_access(soft_check *check, uintptr_t at, soft_counted *site, const void *code);

#endif /* SOFT_CHECK_COUNT_H */
