/* simdgroup.h: 32 threads that give each other values: who is where, and who goes on together.
 *
 * Each lane is in one of five states:
 *
 *     ready ──runs──► meeting     it waits in a SIMD-group function
 *       ▲               │         when no lane is ready any more, the lanes of one site go on
 *       │◄──────────────┘
 *       │◄───────── at_barrier    it waits for the whole threadgroup
 *     (running, or returned: in no mask)
 *
 * Lanes whose calls diverge wait at different sites.  The site that comes first in the code goes
 * on first, all of its lanes together: lanes that were sent one way meet those sent another where
 * the ways join, as they do on a GPU.  A site that all lanes must reach waits for those elsewhere.
 *
 * Owns:      the bytes that lanes gave.
 * Calls:     nothing.
 * Threads:   the OS thread that runs the threadgroup.
 * Invariant: lanes that come write into one half of `values`, lanes that went on read the other.
 */
#ifndef SOFT_SIMDGROUP_H
#define SOFT_SIMDGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "softmetal/fiber.h"

typedef struct soft_simdgroup {
    soft_u32 ready, meeting, at_barrier; /* bit i: lane i */
    soft_u32 begun;                      /* lanes that have a fiber */
    soft_u32 met;                        /* lanes that went on together last */
    soft_u32 for_all;     /* lanes that meet, or met, where all lanes must come */
    soft_u32 half;        /* of values: for lanes that come */
    soft_u32 shared_half; /* of what regions share: as it is now */
    soft_u32
        next; /* of regions: the wait that all lanes that are ready go on from, if it is one */
    bool is_divergent;                  /* lanes meet at several sites */
    uintptr_t places[SOFT_SIMD_WIDTH];  /* of the sites in the code: the first one goes on */
    const void *sites[SOFT_SIMD_WIDTH]; /* of fibers: what the checker speaks of */
    soft_u8 nbytes[SOFT_SIMD_WIDTH];    /* that each lane gave */
    _Alignas(64) soft_u8 values[2][SOFT_SIMD_NBYTES];
} soft_simdgroup;

/* A SIMD-group of which these lanes exist, and none has run. */
void soft_simdgroup_begin(soft_simdgroup *simdgroup, soft_u32 lanes);
/* No lane is ready, and some meet: those of one site become ready, and are in `met`. */
void soft_simdgroup_meet(soft_simdgroup *simdgroup);

/* Where the lane's value lies in one half. */
SOFT_ON_FIBER static inline soft_u8 *
soft_simdgroup_place(soft_simdgroup *simdgroup, soft_u32 half, soft_u32 lane)
{
    soft_u32 nbytes = simdgroup->nbytes[lane];
    return simdgroup->values[half] + SOFT_SIMD_PLANE(nbytes) + lane * SOFT_SIMD_STRIDE(nbytes);
}

/* A lane comes to a SIMD-group function with some bytes, as simd_exchange of soft_runtime.
 * `place`: the site's, alike for lanes that meet. */
SOFT_ON_FIBER static inline void
soft_simdgroup_come(soft_simdgroup *simdgroup, soft_u32 lane, const void *bytes,
                    soft_u32 nbytes, uintptr_t place)
{
    soft_u32 bit = UINT32_C(1) << lane;
    if (__builtin_expect((nbytes & SOFT_ALL_LANES) != 0, 0)) {
        nbytes &= ~SOFT_ALL_LANES;
        simdgroup->for_all |= bit;
    }
    else {
        simdgroup->for_all &= ~bit;
    }
    simdgroup->nbytes[lane] = (soft_u8)nbytes;
    if (bytes != NULL) {
        memcpy(soft_simdgroup_place(simdgroup, simdgroup->half, lane), bytes, nbytes);
    }
    if (simdgroup->meeting == 0) {
        simdgroup->is_divergent = false;
    }
    else if (simdgroup->places[__builtin_ctz(simdgroup->meeting)] != place) {
        simdgroup->is_divergent = true;
    }
    simdgroup->places[lane] = place;
    simdgroup->meeting |= bit;
}

/* What the lanes in `met` gave, `nbytes` each. */
SOFT_ON_FIBER static inline const soft_u8 *
soft_simdgroup_values(const soft_simdgroup *simdgroup, soft_u32 nbytes)
{
    return simdgroup->values[simdgroup->half ^ 1] + SOFT_SIMD_PLANE(nbytes);
}

#endif /* SOFT_SIMDGROUP_H */
