/* regions.h: a threadgroup whose kernel was split into regions (regions.py), run as loops.
 *
 * All threads of a threadgroup, or of a SIMD-group where lanes wait for each other, run one region
 * together; then the wait that they came to says which is next.  Threads that came to different
 * waits, or that a seed shuffles, run it in pieces, down to one thread each.
 *
 * Owns:    what threads keep across waits.
 * Calls:   the image, simdgroup.h, placement.h.
 * Threads: the OS thread that runs the threadgroup.
 */
#ifndef SOFT_REGIONS_H
#define SOFT_REGIONS_H

#include "softmetal/kernels/placement.h"
#include "softmetal/kernels/simdgroup.h"

typedef struct soft_region_memory {
    soft_u8 *slots; /* mapped; behind them what is shared, two halves for each SIMD-group */
    soft_u64 nbytes;
    soft_u16 next[SOFT_MOST_THREADS]; /* the wait that a thread came to */
} soft_region_memory;

struct soft_threadgroup;
/* The next threadgroup.  False: there is none, or the run is stopped. */
typedef bool soft_next_group(struct soft_threadgroup *group);

/* Make room for what this kernel's threads keep.  False: there is no memory. */
bool soft_region_memory_fit(soft_region_memory *memory, const soft_regions *regions);

/* Run threadgroup after threadgroup. */
void soft_regions_run(struct soft_threadgroup *group, soft_next_group *next_group);

#endif /* SOFT_REGIONS_H */
