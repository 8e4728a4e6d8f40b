/* copy_runs.c: loops that move one run after the other, one loop for each size class.
 *
 * A run whose size is not a power of two is moved as pieces that overlap, all loaded before any is
 * stored: no branch in the loop, and no byte outside the run is touched.  Four runs go at a time:
 * the loads do not wait for the stores before them.
 */
#include "copy_kernels.h"
#include "copy_vector.h"

#define STREAM_RUN_NBYTES 512         /* shorter runs have too few whole lines */
#define STREAM_TOTAL_NBYTES (48 << 20) /* smaller copies may stay in a cache */

/* ---- items: what a loop carries from source to destination ---- */

#define DEFINE_ITEM(bits, type)                                                                \
    typedef struct {                                                                           \
        type whole;                                                                            \
    } item_##bits;                                                                             \
    typedef struct {                                                                           \
        type first, last;                                                                      \
    } pair_##bits;                                                                             \
    VEC_INLINE item_##bits load_item_##bits(const char *from, int64_t run)                     \
    {                                                                                          \
        item_##bits item;                                                                      \
        (void)run;                                                                             \
        memcpy(&item.whole, from, sizeof(type));                                               \
        return item;                                                                           \
    }                                                                                          \
    VEC_INLINE void store_item_##bits(char *to, item_##bits item, int64_t run)                 \
    {                                                                                          \
        (void)run;                                                                             \
        memcpy(to, &item.whole, sizeof(type));                                                 \
    }                                                                                          \
    VEC_INLINE pair_##bits load_pair_##bits(const char *from, int64_t run)                     \
    {                                                                                          \
        pair_##bits pair;                                                                      \
        memcpy(&pair.first, from, sizeof(type));                                               \
        memcpy(&pair.last, from + run - (int64_t)sizeof(type), sizeof(type));                  \
        return pair;                                                                           \
    }                                                                                          \
    VEC_INLINE void store_pair_##bits(char *to, pair_##bits pair, int64_t run)                 \
    {                                                                                          \
        memcpy(to, &pair.first, sizeof(type));                                                 \
        memcpy(to + run - (int64_t)sizeof(type), &pair.last, sizeof(type));                    \
    }

DEFINE_ITEM(8, uint8_t)
DEFINE_ITEM(16, uint16_t)
DEFINE_ITEM(32, uint32_t)
DEFINE_ITEM(64, uint64_t)
DEFINE_ITEM(128, vec)

/* ---- loops ---- */

#define DEFINE_RUNS(item)                                                                      \
    static void move_##item(const copy_block *block, char *dst, const char *src)               \
    {                                                                                          \
        const copy_axis outer = block->outer, inner = block->inner;                            \
        const int64_t run = block->run, up = inner.dst_step, on = inner.src_step;              \
        for (int64_t i = 0; i < outer.extent; i++) {                                           \
            char *to = dst + i * outer.dst_step;                                               \
            const char *from = src + i * outer.src_step;                                       \
            int64_t j = 0;                                                                     \
            for (; j + 4 <= inner.extent; j += 4, to += 4 * up, from += 4 * on) {              \
                item a = load_##item(from, run), b = load_##item(from + on, run);              \
                item c = load_##item(from + 2 * on, run), d = load_##item(from + 3 * on, run); \
                store_##item(to, a, run);                                                      \
                store_##item(to + up, b, run);                                                 \
                store_##item(to + 2 * up, c, run);                                             \
                store_##item(to + 3 * up, d, run);                                             \
            }                                                                                  \
            for (; j < inner.extent; j++, to += up, from += on) {                              \
                store_##item(to, load_##item(from, run), run);                                 \
            }                                                                                  \
        }                                                                                      \
    }

DEFINE_RUNS(item_8)
DEFINE_RUNS(item_16)
DEFINE_RUNS(item_32)
DEFINE_RUNS(item_64)
DEFINE_RUNS(item_128)
DEFINE_RUNS(pair_16)
DEFINE_RUNS(pair_32)
DEFINE_RUNS(pair_64)
DEFINE_RUNS(pair_128)

/* Every second item of the source, packed: whole vectors are read, so the last items, after which
 * no other need follow, go one by one. */
#define DEFINE_EVERY_SECOND(size)                                                              \
    static void move_every_second_##size(const copy_block *block, char *dst, const char *src)  \
    {                                                                                          \
        const copy_axis outer = block->outer;                                                  \
        const int64_t count = block->inner.extent;                                             \
        for (int64_t i = 0; i < outer.extent; i++) {                                           \
            char *to = dst + i * outer.dst_step;                                               \
            const char *from = src + i * outer.src_step, *last = from + 2 * size * (count - 1); \
            for (; from + 2 * VEC_NBYTES <= last; from += 2 * VEC_NBYTES, to += VEC_NBYTES) {  \
                vec_store(to, vec_pick_even_##size(vec_load(from), vec_load(from + VEC_NBYTES))); \
            }                                                                                  \
            for (; from <= last; from += 2 * size, to += size) {                               \
                memcpy(to, from, size);                                                        \
            }                                                                                  \
        }                                                                                      \
    }

DEFINE_EVERY_SECOND(1)
DEFINE_EVERY_SECOND(2)
DEFINE_EVERY_SECOND(4)

static void
move_any(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer, inner = block->inner;
    for (int64_t i = 0; i < outer.extent; i++) {
        char *to = dst + i * outer.dst_step;
        const char *from = src + i * outer.src_step;
        for (int64_t j = 0; j < inner.extent; j++) {
            memcpy(to, from, (size_t)block->run);
            to += inner.dst_step;
            from += inner.src_step;
        }
    }
}

/* ---- long runs of a copy that does not stay in the caches ---- */

static void
stream_run(char *to, const char *from, int64_t run)
{
    int64_t head = (int64_t)(-(uintptr_t)to % VEC_LINE_NBYTES);
    int64_t end = run - (run - head) % VEC_LINE_NBYTES;
    memcpy(to, from, (size_t)head);
    for (int64_t at = head; at < end; at += VEC_LINE_NBYTES) {
        VEC_UNROLL for (int64_t k = 0; k < VEC_LINE_NBYTES; k += VEC_NBYTES)
        {
            vec_stream(to + at + k, vec_load(from + at + k));
        }
    }
    memcpy(to + end, from + end, (size_t)(run - end));
}

static void
stream_runs(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer, inner = block->inner;
    for (int64_t i = 0; i < outer.extent; i++) {
        for (int64_t j = 0; j < inner.extent; j++) {
            stream_run(dst + i * outer.dst_step + j * inner.dst_step,
                       src + i * outer.src_step + j * inner.src_step, block->run);
        }
    }
    vec_stream_end();
}

/* ---- which ---- */

static copy_kernel
small_run_kernel(int64_t run)
{
    switch (run) {
    case 1:
        return move_item_8;
    case 2:
        return move_item_16;
    case 4:
        return move_item_32;
    case 8:
        return move_item_64;
    case 16:
        return move_item_128;
    default:
        return run < 4 ? move_pair_16 : run < 8 ? move_pair_32 : move_pair_64;
    }
}

static copy_kernel
every_second_kernel(int64_t run)
{
    return run == 1   ? move_every_second_1
           : run == 2 ? move_every_second_2
           : run == 4 ? move_every_second_4
                      : NULL;
}

copy_kernel
copy_runs_kernel(const copy_block *block)
{
    int64_t run = block->run;
    if (block->inner.dst_step == run && block->inner.src_step == 2 * run && run <= 4) {
        copy_kernel kernel = every_second_kernel(run);
        if (kernel != NULL) {
            return kernel;
        }
    }
    if (run <= 16) {
        return small_run_kernel(run);
    }
    if (run <= 32) {
        return move_pair_128;
    }
    bool streams = run >= STREAM_RUN_NBYTES && block->total_nbytes >= STREAM_TOTAL_NBYTES;
    return streams ? stream_runs : move_any;
}
