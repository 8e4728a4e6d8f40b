/* copy_roads.c: three of the roads: one run over each row, channels to planes and back, and any
 * block.  copy_tiles.c has the fourth. */
#include "copy/copy_roads.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- one run of the source over each row of the destination ---- */

#define LONG_NBYTES 4096 /* memset earns its start, and the look at the item */

/* The row begins with `done` bytes.  Repeat them, twice as many each time, while what is
 * repeated stays in the first cache. */
static void
repeat_start(char *row, int64_t nbytes, int64_t done)
{
    const int64_t most = COPY_FIRST_CACHE / 2;
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

/* ---- two, three or four channels, from side by side to planes and back ----
 *
 *     RGBRGBRGB...   <->   RRR...   GGG...   BBB...
 *
 * The loops are plain: arm64 has instructions for them (LD3, ST3), and compilers use those. */

#define FEW_PIXELS 16 /* vectors of fewer do not pay; tiles take those */

#define DEFINE_ROADS(channels, size) \
    static void split_##channels##_##size(const copy_block *block, char *dst, const char *src) \
    { \
        const int64_t plane = block->outer.dst_step, count = block->inner.extent; \
        const copy_element_##size *restrict from = (const copy_element_##size *)src; \
        copy_element_##size *to[channels]; \
        for (int c = 0; c < channels; c++) { \
            to[c] = (copy_element_##size *)(dst + c * plane); \
        } \
        for (int64_t i = 0; i < count; i++) { \
            for (int c = 0; c < channels; c++) { \
                to[c][i] = from[i * channels + c]; \
            } \
        } \
    } \
    static void join_##channels##_##size(const copy_block *block, char *dst, const char *src) \
    { \
        const int64_t plane = block->inner.src_step, count = block->outer.extent; \
        copy_element_##size *restrict to = (copy_element_##size *)dst; \
        const copy_element_##size *from[channels]; \
        for (int c = 0; c < channels; c++) { \
            from[c] = (const copy_element_##size *)(src + c * plane); \
        } \
        for (int64_t i = 0; i < count; i++) { \
            for (int c = 0; c < channels; c++) { \
                to[i * channels + c] = from[c][i]; \
            } \
        } \
    }

#define DEFINE_ALL(channels) \
    DEFINE_ROADS(channels, 1) \
    DEFINE_ROADS(channels, 2) \
    DEFINE_ROADS(channels, 4) \
    DEFINE_ROADS(channels, 8)

DEFINE_ALL(2)
DEFINE_ALL(3)
DEFINE_ALL(4)

/* Indexed by channels - 2 and log2 of the run. */
static const copy_road splits[3][4] = {
    {split_2_1, split_2_2, split_2_4, split_2_8},
    {split_3_1, split_3_2, split_3_4, split_3_8},
    {split_4_1, split_4_2, split_4_4, split_4_8},
};
static const copy_road joins[3][4] = {
    {join_2_1, join_2_2, join_2_4, join_2_8},
    {join_3_1, join_3_2, join_3_4, join_3_8},
    {join_4_1, join_4_2, join_4_4, join_4_8},
};

/* A block of `count` channels of pixels that are dense on the other side. */
static bool
are_channels(int64_t count, int64_t pixel_step, int64_t pixels, int64_t run)
{
    return 2 <= count && count <= 4 && pixel_step == count * run && pixels >= FEW_PIXELS;
}

copy_road
copy_planes_road(const copy_block *block)
{
    const copy_axis *outer = &block->outer, *inner = &block->inner;
    int64_t run = block->run;
    bool is_turned = inner->dst_step == run && outer->src_step == run;
    if (!is_turned || run > 8 || (run & (run - 1)) != 0) {
        return NULL;
    }
    int index = __builtin_ctzll((unsigned long long)run);
    if (are_channels(outer->extent, inner->src_step, inner->extent, run)) {
        return splits[outer->extent - 2][index];
    }
    if (are_channels(inner->extent, outer->dst_step, outer->extent, run)) {
        return joins[inner->extent - 2][index];
    }
    return NULL;
}

/* ---- any block: run after run, row after row ----
 *
 * Elements get loops of their own, which compilers make vectors of where the step is known:
 * every second element, and all of them backwards. */

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
        return run > COPY_SECOND_CACHE ? each_long_run : each_run;
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
