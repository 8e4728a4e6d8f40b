/* copy_roads.h: the roads of a copy, its innermost loops: two axes of runs at a time.
 *
 * Owns:    nothing.
 * Threads: pure functions over the caller's memory.
 * Overlap: none is allowed here; copy.c sees to that.
 */
#ifndef MD_COPY_ROADS_H
#define MD_COPY_ROADS_H

#include <stdint.h>

#include "copy/copy_plan.h"

typedef struct copy_block {
    int64_t run;     /* bytes */
    copy_axis outer; /* extent 1 where the copy has fewer axes */
    copy_axis inner;
} copy_block;

/* Copy block->outer.extent x block->inner.extent runs from `src` to `dst`. */
typedef void (*copy_road)(const copy_block *block, char *dst, const char *src);

/* Each returns its road for a block of this form, or NULL.  copy_nest.c asks in this order. */
copy_road copy_fill_road(const copy_block *block);   /* one run over each row of dst */
copy_road copy_planes_road(const copy_block *block); /* 2 to 4 channels to planes, or back */
copy_road copy_tiles_road(const copy_block *block);  /* outer dense in src, inner in dst */
copy_road copy_runs_road(const copy_block *block);   /* any block; never NULL */

#endif /* MD_COPY_ROADS_H */
