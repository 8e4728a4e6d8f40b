/* copy_fill.c: the road that repeats one run of the source over each row of the destination. */
#include <stdbool.h>
#include <stddef.h>

#include "copy/copy_plan.h"
#include "copy/copy_roads.h"
#include "copy/copy_run.h"

#define LONG_NBYTES 4096 /* memset earns its start, and the look at the item */

/* The row begins with `done` bytes.  Repeat them, twice as many each time, while what is
 * repeated stays in the first cache. */
static void
repeat_start(char *row, int64_t nbytes, int64_t done)
{
    const int64_t most = copy_caches_get()->first_nbytes / 2;
    int64_t chunk = done;
    while (done < nbytes) {
        chunk = done <= most ? done : chunk;
        int64_t step = chunk < nbytes - done ? chunk : nbytes - done;
        memcpy(row + done, row, (size_t)step);
        done += step;
    }
}

#define FILL_ELEMENTS(size) \
    case size: { \
        const copy_element_##size value = *(const copy_element_##size *)item; \
        COPY_UNROLL(4) for (int64_t at = 0; at < nbytes; at += (size)) \
        { \
            *(copy_element_##size *)(row + at) = value; \
        } \
        break; \
    }

/* memset can overwrite long rows without reading them first, which a loop cannot. */
static void
fill_row(char *restrict row, int64_t nbytes, const char *restrict item, int64_t run)
{
    bool is_long = nbytes >= LONG_NBYTES;
    if (run == 1 || (is_long && memcmp(item, item + 1, (size_t)run - 1) == 0)) {
        memset(row, item[0], (size_t)nbytes);
        return;
    }
    switch (run) {
        FILL_ELEMENTS(2)
        FILL_ELEMENTS(4)
        FILL_ELEMENTS(8)
        FILL_ELEMENTS(16)
    default: memcpy(row, item, (size_t)run); repeat_start(row, nbytes, run);
    }
}

static void
fill_rows(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer;
    for (int64_t i = 0; i < outer.extent; i++) {
        fill_row(dst + i * outer.dst_step, block->inner.extent * block->run,
                 src + i * outer.src_step, block->run);
    }
}

copy_road
copy_fill_road(const copy_block *block)
{
    const copy_axis *inner = &block->inner;
    return inner->src_step == 0 && inner->dst_step == block->run ? fill_rows : NULL;
}
