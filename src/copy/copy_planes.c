/* copy_planes.c: two, three or four channels, from side by side to planes and back.
 *
 *     RGBRGBRGB...   <->   RRR...   GGG...   BBB...
 *
 * The loops are plain: arm64 has instructions for them (LD3, ST3), and compilers use those.
 */
#include <stdbool.h>
#include <stddef.h>

#include "copy/copy_roads.h"
#include "copy/copy_run.h"

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
