/* count_state.h: one counted launch: what the files that count share.
 *
 *     check_count.c       the calls of the checker; which accesses belong together
 *       │  count_once.c       those to which no thread comes twice
 *       │  count_sums.c       what they sum up to
 *       │  count_filing.c     the sums, copied for whoever asked
 *       ▼
 *     count_state.h
 *
 * Owns:    as each field says.
 * Calls:   nothing.
 * Threads: the OS thread that runs the launch.
 */
#ifndef SOFT_COUNT_STATE_H
#define SOFT_COUNT_STATE_H

#include "softmetal/checker/check_state.h"
#include "softmetal/checker/counts.h"
#include "softmetal/fiber.h"

#define SOFT_MOST_COUNTED_PLACES 256 /* in the code, where threads wait */
#define SOFT_LISTS_OF_CHUNK 512

/* What one access, or branch, sums up to, in one piece of memory. */
typedef struct soft_count_row {
    struct soft_count_row *next;
    soft_counts_row sums; /* `file` is the image's */
} soft_count_row;

/* Which bytes of a view were touched.  Mostly they are one run, and there are no bits. */
typedef struct soft_count_touched {
    uint64_t low, high; /* the run that grew last, from the view's first byte on ... */
    uint64_t *bits; /* ... and of all before one bit a byte; owned, NULL: there is no other */
} soft_count_touched;

typedef struct soft_count_memory {
    soft_counts_memory facts; /* `name` is the image's */
    uintptr_t base;
    bool is_lasting;  /* a view, and no other has bytes of it: what lies there stays its */
    uintptr_t origin; /* where a cache line begins; 0: at each multiple of its size */
    soft_count_touched read, written;
    uint32_t *atomics; /* owned; one for each word.  NULL: no atomic was here */
} soft_count_memory;

/* Addresses of lanes that are no series. */
typedef struct soft_count_lists {
    struct soft_count_lists *next;
    uint64_t lists[SOFT_LISTS_OF_CHUNK][SOFT_SIMD_WIDTH];
} soft_count_lists;

typedef struct soft_count_places {
    soft_counts_place list[SOFT_MOST_COUNTED_PLACES];
    size_t count, last; /* the last one that was counted */
} soft_count_places;

typedef struct soft_count {
    size_t memory_count;
    soft_counted *used;        /* sites that were carried out since all lanes met */
    soft_u32 simdgroup, began; /* which one runs, and which of its lanes have since */
    soft_u32 possible;         /* lanes of it */
    uint64_t threads, groups, simdgroups, threadgroup_nbytes, given_nbytes;
    soft_count_places barriers, meetings; /* the second of SIMD-groups */
    soft_count_lists *chunks, *chunk;     /* owned; the one that is being used */
    size_t list_count;                    /* of that one */
    size_t together_count;                /* of all sites, and lists */
    bool lacks_memory;
    soft_count_memory memories[]; /* room for all ranges */
} soft_count;

/* There may be no instruction for it; mostly all lanes are there. */
SOFT_ON_FIBER static inline size_t
soft_count_lanes(soft_u32 lanes)
{
    return lanes == UINT32_MAX ? SOFT_SIMD_WIDTH : (size_t)__builtin_popcount(lanes);
}

SOFT_ON_FIBER static inline bool
soft_range_has(const soft_range *range, uint64_t at, size_t nbytes)
{
    return at - range->base <= range->nbytes - nbytes;
}

/* Ask about its series: do they lie in an argument, with no byte between two lanes, and is the order in which they
 * are summed up nobody's matter? */
SOFT_ON_FIBER static inline bool
soft_count_is_of_neighbours(const soft_counted *site)
{
    return site->step <= site->nbytes && (site->how & ~SOFT_ACCESS_WRITE) == 0 &&
           ((const soft_range *)site->range)->memory != SOFT_THREADGROUP_MEMORY;
}

static inline bool
soft_count_is_branch(const soft_counted *site)
{
    return (site->how & SOFT_ACCESS_BRANCH) != 0;
}

/* ---- count_sums.c ---- */

/* What the lanes did together by this access.  Without memory, count->lacks_memory is set. */
void soft_count_sum_up(soft_check *check, soft_counted *site, const soft_together *one);
/* The same of site->many SIMD-groups of all lanes, which count_once.c has foreseen. */
void soft_count_sum_up_series(soft_check *check, soft_counted *site);
/* How many bytes of a view were touched. */
uint64_t soft_count_distinct(const soft_count_touched *touched, uint64_t nbytes);

/* ---- count_once.c: accesses to which no thread comes twice ---- */

/* Forget all. */
void soft_once_forget(soft_counted *site);
/* The SIMD-group's lanes have met.  False: none of them came here, and the next one that comes asks. */
bool soft_once_sum_up(soft_check *check, soft_counted *site);
/* Sum up what was left for later; before site->range is another, and at the end. */
void soft_once_settle(soft_check *check, soft_counted *site);

SOFT_ON_FIBER static inline void
soft_once_foresee_none(soft_counted *site)
{
    site->ahead = SOFT_NO_KEY; /* where no lane is ... */
    site->due = 0;             /* ... nor comes to */
    site->left = 0;
}

/* ---- count_filing.c ---- */

/* Copies of all that lies in the image, for counts.h; without memory there are none. */
void soft_count_file(const soft_check *check);

#endif /* SOFT_COUNT_STATE_H */
