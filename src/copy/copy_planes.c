/* copy_planes.c: two, three or four channels, from side by side to planes and back.
 *
 * C vectors of n elements hold C*n elements.  One perfect shuffle moves the element at place p
 * to place 2p modulo C*n - 1.  To split channels is to multiply by n, which is log2(n)
 * shuffles, for any C; to join C = 2 or 4 planes is to multiply by C, log2(C) shuffles; to
 * join three is to undo the log2(n) shuffles that split them. */
#include "copy/copy_kernels.h"
#include "copy/copy_vector.h"

/* ---- one shuffle of C vectors, and its inverse ---- */

#define DEFINE_SHUFFLES(size) \
    VEC_INLINE void shuffle_2_##size(vec *v) \
    { \
        vec low = vec_zip_low_##size(v[0], v[1]); \
        v[1] = vec_zip_high_##size(v[0], v[1]); \
        v[0] = low; \
    } \
    VEC_INLINE void shuffle_3_##size(vec *v) \
    { \
        vec second = vec_middle(v[1], v[2]); /* where the second half begins */ \
        vec low = vec_zip_low_##size(v[0], second); \
        v[2] = vec_zip_low_##size(v[1], vec_middle(v[2], v[2])); \
        v[1] = vec_zip_high_##size(v[0], second); \
        v[0] = low; \
    } \
    VEC_INLINE void shuffle_4_##size(vec *v) \
    { \
        vec low = vec_zip_low_##size(v[0], v[2]), high = vec_zip_high_##size(v[0], v[2]); \
        v[2] = vec_zip_low_##size(v[1], v[3]); \
        v[3] = vec_zip_high_##size(v[1], v[3]); \
        v[0] = low; \
        v[1] = high; \
    } \
    VEC_INLINE void unshuffle_3_##size(vec *v) \
    { \
        vec even = vec_pick_even_##size(v[0], v[1]); \
        vec odd = vec_pick_odd_##size(v[0], v[1]); \
        v[1] = vec_zip_low_8(vec_pick_even_##size(v[2], v[2]), odd); \
        v[2] = vec_middle(odd, vec_pick_odd_##size(v[2], v[2])); \
        v[0] = even; \
    }

/* ---- one group of n elements of each channel ---- */

#define DEFINE_SPLIT(channels, size) \
    VEC_INLINE void split_group_##channels##_##size(char *dst, int64_t plane_step, \
                                                    const char *src) \
    { \
        vec v[channels]; \
        VEC_UNROLL for (int c = 0; c < channels; c++) \
        { \
            v[c] = vec_load(src + c * VEC_NBYTES); \
        } \
        VEC_UNROLL for (int done = size; done < VEC_NBYTES; done *= 2) \
        { \
            shuffle_##channels##_##size(v); \
        } \
        VEC_UNROLL for (int c = 0; c < channels; c++) \
        { \
            vec_store(dst + c * plane_step, v[c]); \
        } \
    }

#define DEFINE_JOIN(channels, size, SHUFFLE, first, end) \
    VEC_INLINE void join_group_##channels##_##size(char *dst, const char *src, \
                                                   int64_t plane_step) \
    { \
        vec v[channels]; \
        VEC_UNROLL for (int c = 0; c < channels; c++) \
        { \
            v[c] = vec_load(src + c * plane_step); \
        } \
        VEC_UNROLL for (int done = first; done < end; done *= 2) \
        { \
            SHUFFLE(v); \
        } \
        VEC_UNROLL for (int c = 0; c < channels; c++) \
        { \
            vec_store(dst + c * VEC_NBYTES, v[c]); \
        } \
    }

/* ---- all of them; the last group is moved back and overlaps its neighbour ---- */

#define DEFINE_KERNELS(channels, size) \
    static void split_##channels##_##size(const copy_block *block, char *dst, const char *src) \
    { \
        const int64_t last = block->inner.extent - VEC_NBYTES / size; \
        const int64_t plane_step = block->outer.dst_step; \
        for (int64_t i = 0; i < last; i += VEC_NBYTES / size) { \
            split_group_##channels##_##size(dst + i * size, plane_step, \
                                            src + i * size * channels); \
        } \
        split_group_##channels##_##size(dst + last * size, plane_step, \
                                        src + last * size * channels); \
    } \
    static void join_##channels##_##size(const copy_block *block, char *dst, const char *src) \
    { \
        const int64_t last = block->outer.extent - VEC_NBYTES / size; \
        const int64_t plane_step = block->inner.src_step; \
        for (int64_t i = 0; i < last; i += VEC_NBYTES / size) { \
            join_group_##channels##_##size(dst + i * size * channels, src + i * size, \
                                           plane_step); \
        } \
        join_group_##channels##_##size(dst + last * size * channels, src + last * size, \
                                       plane_step); \
    }

#define DEFINE_ALL(size) \
    DEFINE_SHUFFLES(size) \
    DEFINE_SPLIT(2, size) \
    DEFINE_SPLIT(3, size) \
    DEFINE_SPLIT(4, size) \
    DEFINE_JOIN(2, size, shuffle_2_##size, 1, 2) \
    DEFINE_JOIN(3, size, unshuffle_3_##size, size, VEC_NBYTES) \
    DEFINE_JOIN(4, size, shuffle_4_##size, 1, 4) \
    DEFINE_KERNELS(2, size) \
    DEFINE_KERNELS(3, size) \
    DEFINE_KERNELS(4, size)

DEFINE_ALL(1)
DEFINE_ALL(2)
DEFINE_ALL(4)
DEFINE_ALL(8)

/* Indexed by channels - 2 and log2 of the item size. */
static const copy_kernel splits[3][4] = {
    {split_2_1, split_2_2, split_2_4, split_2_8},
    {split_3_1, split_3_2, split_3_4, split_3_8},
    {split_4_1, split_4_2, split_4_4, split_4_8},
};
static const copy_kernel joins[3][4] = {
    {join_2_1, join_2_2, join_2_4, join_2_8},
    {join_3_1, join_3_2, join_3_4, join_3_8},
    {join_4_1, join_4_2, join_4_4, join_4_8},
};

/* Channels, when `channels` steps along the short axis fill one step of the long one, and the
 * long one has a whole group; else 0. */
static int64_t
count_channels(int64_t channels, int64_t step, int64_t pixels, int64_t run)
{
    bool is_dense = step == channels * run && pixels * run >= VEC_NBYTES;
    return is_dense && channels >= 2 && channels <= 4 ? channels : 0;
}

copy_kernel
copy_planes_kernel(const copy_block *block)
{
    const copy_axis *outer = &block->outer, *inner = &block->inner;
    int64_t run = block->run;
    bool is_turned = inner->dst_step == run && outer->src_step == run;
    if (!is_turned || run > 8 || (run & (run - 1)) != 0) {
        return NULL;
    }
    int log_run = __builtin_ctzll((unsigned long long)run);
    int64_t channels = count_channels(outer->extent, inner->src_step, inner->extent, run);
    if (channels != 0) {
        return splits[channels - 2][log_run];
    }
    channels = count_channels(inner->extent, outer->dst_step, outer->extent, run);
    return channels != 0 ? joins[channels - 2][log_run] : NULL;
}
