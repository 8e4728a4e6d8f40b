/* copy_runs.c: the road for any block: run after run, row after row.
 *
 * Elements get loops of their own, which compilers make vectors of where the step is known:
 * every second element, and all of them backwards.
 */
#include <stdbool.h>
#include <stddef.h>

#include "copy/copy_plan.h"
#include "copy/copy_roads.h"
#include "copy/copy_run.h"

/* MOVE is a statement on `to` and `from`, `up` and `on` the bytes from one to the next. */
#define DEFINE_ROAD(name, up, on, MOVE) \
    static void name(const copy_block *block, char *dst, const char *src) \
    { \
        const copy_axis outer = block->outer, inner = block->inner; \
        for (int64_t i = 0; i < outer.extent; i++) { \
            char *restrict row = dst + i * outer.dst_step; \
            const char *restrict source = src + i * outer.src_step; \
            for (int64_t j = 0; j < inner.extent; j++) { \
                char *to = row + j * (up); \
                const char *from = source + j * (on); \
                MOVE; \
            } \
        } \
    }

#define DEFINE_ELEMENT_ROADS(size) \
    DEFINE_ROAD(each_##size, inner.dst_step, inner.src_step, COPY_ELEMENT(size, to, from)) \
    DEFINE_ROAD(seconds_##size, size, 2 * size, COPY_ELEMENT(size, to, from))

#define DEFINE_REVERSE(size) \
    DEFINE_ROAD(reverse_##size, size, -size, COPY_ELEMENT(size, to, from))

DEFINE_ELEMENT_ROADS(1)
DEFINE_ELEMENT_ROADS(2)
DEFINE_ELEMENT_ROADS(4)
DEFINE_ELEMENT_ROADS(8)
DEFINE_ELEMENT_ROADS(16)
DEFINE_REVERSE(2)
DEFINE_REVERSE(4)
DEFINE_REVERSE(8)
DEFINE_REVERSE(16)
DEFINE_ROAD(each_run, inner.dst_step, inner.src_step, copy_run(to, from, block->run))
DEFINE_ROAD(each_long_run, inner.dst_step, inner.src_step, memcpy(to, from, (size_t)block->run))

/* SSE2 cannot shuffle bytes, but every machine can turn eight of them round. */
static void
reverse_1(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer;
    const int64_t count = block->inner.extent;
    for (int64_t i = 0; i < outer.extent; i++) {
        char *restrict to = dst + i * outer.dst_step;
        const char *restrict from = src + i * outer.src_step;
        int64_t j = 0;
        for (; j + 8 <= count; j += 8) {
            *(copy_element_8 *)(to + j) =
                __builtin_bswap64(*(const copy_element_8 *)(from - j - 7));
        }
        for (; j < count; j++) {
            to[j] = from[-j];
        }
    }
}

/* Indexed by log2 of the run. */
static const copy_road each[] = {each_1, each_2, each_4, each_8, each_16};
static const copy_road seconds[] = {seconds_1, seconds_2, seconds_4, seconds_8, seconds_16};
static const copy_road reverse[] = {reverse_1, reverse_2, reverse_4, reverse_8, reverse_16};

copy_road
copy_runs_road(const copy_block *block)
{
    int64_t run = block->run;
    if (run > 16 || (run & (run - 1)) != 0) {
        return run > copy_caches_get()->second_nbytes ? each_long_run : each_run;
    }
    int index = __builtin_ctzll((unsigned long long)run);
    if (block->inner.dst_step == run && block->inner.src_step == 2 * run) {
        return seconds[index];
    }
    if (block->inner.dst_step == run && block->inner.src_step == -run) {
        return reverse[index];
    }
    return each[index];
}
