/* copy_plan.h: one copy as the smallest loop nest that does it.
 *
 *     shape (2, 3, 4, 5), itemsize 4     bytes from item to item: extent, in dst, in src
 *
 *     as given              in dst's order        neighbours joined      dense items widened
 *     2   240   240         2   240   240         6   80   80            6   80   80
 *     3    80    80   sort  3    80    80  merge  5   16    4   widen    5   16    4
 *     4     4    20   -->   5    16     4   -->   4    4   20    -->     4    4   20
 *     5    16     4         4     4    20
 *                                                 run  4                 run  4
 *
 * Widening joins the last axis to the run where it is dense on both sides: rows of a sliced
 * matrix become one run each, and a contiguous copy is a run without axes.
 *
 * copy_nest.c then takes two axes of the plan, the one that is densest in dst and the one that
 * is densest in src (above: 4 and 5), and the first road of copy_roads.h that moves such a
 * block.  It loops over the other axes (above: 6).
 *
 * Owns:      nothing: a plan is a value on the stack and points into the caller's memory.
 * Threads:   pure functions.
 * Units:     everything in bytes, extents in runs.
 * Invariant: axes go from the largest destination step to the smallest; extents are >= 2;
 *            destination steps are not negative; no two neighbours could be one axis.
 */
#ifndef MD_COPY_PLAN_H
#define MD_COPY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "arithmetic/layout.h"

typedef struct copy_axis {
    int64_t extent;   /* number of steps along this axis */
    int64_t dst_step; /* bytes */
    int64_t src_step; /* bytes; 0 repeats */
} copy_axis;

typedef struct copy_plan {
    char *dst;       /* borrowed; address of the first run */
    const char *src; /* borrowed; address of the first run */
    int64_t run;     /* bytes that lie side by side in both: the widened item */
    int naxes;
    copy_axis axes[LAYOUT_MAX_NDIM]; /* only the first naxes mean anything */
} copy_plan;

/* Plan the copy of `src` into `dst`, which have the same shape and itemsize.  `src` NULL plans
 * a fill: every place takes the item at `src_base`.  False: there is nothing to copy, and
 * `*out` is unspecified. */
bool copy_plan_make(const strided_layout *dst, char *dst_base, const strided_layout *src,
                    const char *src_base, copy_plan *out);

/* The plan that packs `plan`'s source densely at `buffer`, in the order of its axes, and the
 * plan that spreads it from there over its destination.  `buffer` has copy_plan_nbytes(plan)
 * bytes. */
void copy_plan_pack(const copy_plan *plan, char *buffer, copy_plan *pack, copy_plan *spread);

int64_t copy_plan_nbytes(const copy_plan *plan); /* bytes that the plan writes */

/* Whether a byte may be both read and written.  False is certain, true may be a false alarm. */
bool copy_plan_may_overlap(const copy_plan *plan);

/* ---- doing it: source and destination do not overlap ---- */

/* copy_nest.c: on the calling thread. */
void copy_nest_run(const copy_plan *plan);
/* copy_threads.c: on several threads where that helps.  One that cannot be started is done
 * without. */
void copy_threads_run(const copy_plan *plan);

/* ---- caches, of any machine that this runs on: tests set them small ---- */

#ifndef COPY_FIRST_CACHE
#ifdef __APPLE__                     /* the fast cores of M chips */
#define COPY_FIRST_CACHE (128 << 10) /* next to a core */
#define COPY_SECOND_CACHE (3 << 20)  /* one core's share of the next */
#else
#define COPY_FIRST_CACHE (32 << 10)
#define COPY_SECOND_CACHE (2 << 20)
#endif
#endif

#endif /* MD_COPY_PLAN_H */
