/* copy_runs.c: loops that move one run after the other, one loop for each size class.
 *
 * A run whose size is not a power of two is moved as pieces that overlap, all loaded before
 * any is stored: no branch in the loop, and no byte outside the run is touched.  Four runs go
 * at a time: the loads do not wait for the stores before them.
 */
#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "copy/copy_kernels.h"
#include "copy/copy_vector.h"

/* Measured, see benchmarks/bench_copy.py. */
#define STREAM_RUN_NBYTES 512     /* shorter runs have too few whole lines */
#define STREAM_WHOLE_RUN_END 4096 /* runs from here on a memcpy moves as fast, on whole lines */
#define STREAM_RUN_END 12288      /* and from here on anywhere, but for the largest copies */
#define LONG_RUN_NBYTES (1 << 20) /* memcpy may stop using the string instructions here */
#define CROWDED_STEP 4096         /* see is_crowded */
#define CROWDED_MIN_ROWS 512      /* fewer find room */

/* ---- items: what a loop carries from source to destination ---- */

#define DEFINE_ITEM(bits, type) \
    typedef struct { \
        type whole; \
    } item_##bits; \
    typedef struct { \
        type first, last; \
    } pair_##bits; \
    VEC_INLINE item_##bits load_item_##bits(const char *from, int64_t run) \
    { \
        item_##bits item; \
        (void)run; \
        memcpy(&item.whole, from, sizeof(type)); \
        return item; \
    } \
    VEC_INLINE void store_item_##bits(char *to, item_##bits item, int64_t run) \
    { \
        (void)run; \
        memcpy(to, &item.whole, sizeof(type)); \
    } \
    VEC_INLINE pair_##bits load_pair_##bits(const char *from, int64_t run) \
    { \
        pair_##bits pair; \
        memcpy(&pair.first, from, sizeof(type)); \
        memcpy(&pair.last, from + run - (int64_t)sizeof(type), sizeof(type)); \
        return pair; \
    } \
    VEC_INLINE void store_pair_##bits(char *to, pair_##bits pair, int64_t run) \
    { \
        memcpy(to, &pair.first, sizeof(type)); \
        memcpy(to + run - (int64_t)sizeof(type), &pair.last, sizeof(type)); \
    }

DEFINE_ITEM(8, uint8_t)
DEFINE_ITEM(16, uint16_t)
DEFINE_ITEM(32, uint32_t)
DEFINE_ITEM(64, uint64_t)
DEFINE_ITEM(128, vec)

/* ---- loops ---- */

#define DEFINE_RUNS(item) \
    static void move_##item(const copy_block *block, char *dst, const char *src) \
    { \
        const copy_axis outer = block->outer, inner = block->inner; \
        const int64_t run = block->run, up = inner.dst_step, on = inner.src_step; \
        for (int64_t i = 0; i < outer.extent; i++) { \
            char *to = dst + i * outer.dst_step; \
            const char *from = src + i * outer.src_step; \
            int64_t j = 0; \
            for (; j + 4 <= inner.extent; j += 4, to += 4 * up, from += 4 * on) { \
                item a = load_##item(from, run), b = load_##item(from + on, run); \
                item c = load_##item(from + 2 * on, run), d = load_##item(from + 3 * on, run); \
                store_##item(to, a, run); \
                store_##item(to + up, b, run); \
                store_##item(to + 2 * up, c, run); \
                store_##item(to + 3 * up, d, run); \
            } \
            for (; j < inner.extent; j++, to += up, from += on) { \
                store_##item(to, load_##item(from, run), run); \
            } \
        } \
    } \
    static void move_crowded_##item(const copy_block *block, char *dst, const char *src) \
    { \
        const copy_axis outer = block->outer, inner = block->inner; \
        for (int64_t i = 0; i < outer.extent; i++) { \
            char *to = dst + i * outer.dst_step; \
            const char *from = src + i * outer.src_step; \
            for (int64_t j = 0; j < inner.extent; j++) { \
                store_##item(to, load_##item(from, block->run), block->run); \
                vec_pause(); \
                to += inner.dst_step; \
                from += inner.src_step; \
            } \
        } \
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

/* Every second item of the source, packed: whole vectors are read, so the last items, after
 * which no other need follow, go one by one. */
#define DEFINE_EVERY_SECOND(size) \
    static void move_every_second_##size(const copy_block *block, char *dst, const char *src) \
    { \
        const copy_axis outer = block->outer; \
        const int64_t count = block->inner.extent; \
        for (int64_t i = 0; i < outer.extent; i++) { \
            char *to = dst + i * outer.dst_step; \
            const char *from = src + i * outer.src_step, \
                       *last = from + 2 * size * (count - 1); \
            for (; from + 2 * VEC_NBYTES <= last; from += 2 * VEC_NBYTES, to += VEC_NBYTES) { \
                vec_store(to, \
                          vec_pick_even_##size(vec_load(from), vec_load(from + VEC_NBYTES))); \
            } \
            for (; from <= last; from += 2 * size, to += size) { \
                memcpy(to, from, size); \
            } \
        } \
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

#if defined(__x86_64__)
/* CPUID leaf 7, EBX bit 9: "rep movsb" moves whole lines (Intel 64 and IA-32 Optimization
 * Reference Manual, 3.7.6).  Asked once: a virtual machine answers slowly. */
static bool
has_fast_string_move(void)
{
    static atomic_int known; /* 0: not asked; 1: no; 2: yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        unsigned a, b, c, d;
        answer = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 9 & 1) ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

/* It need not read the lines that it writes.  The memcpy of the C library stops using it at a
 * size that it takes from the caches' sizes, as the machine, or a virtual one, tells them. */
static void
move_string(char *to, const char *from, int64_t nbytes)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(nbytes) : : "memory");
}
#else
static bool
has_fast_string_move(void)
{
    return false;
}

static void
move_string(char *to, const char *from, int64_t nbytes)
{
    memcpy(to, from, (size_t)nbytes);
}
#endif

void
copy_one_run(char *to, const char *from, int64_t run)
{
    if (run < LONG_RUN_NBYTES || !has_fast_string_move()) {
        memcpy(to, from, (size_t)run);
        return;
    }
    int64_t head = (int64_t)(-(uintptr_t)to % VEC_LINE_NBYTES);
    memcpy(to, from, VEC_LINE_NBYTES);
    move_string(to + head, from + head, run - head);
}

static void
move_long(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer, inner = block->inner;
    for (int64_t i = 0; i < outer.extent; i++) {
        for (int64_t j = 0; j < inner.extent; j++) {
            copy_one_run(dst + i * outer.dst_step + j * inner.dst_step,
                         src + i * outer.src_step + j * inner.src_step, block->run);
        }
    }
}

static void
stream_runs(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer, inner = block->inner;
    const bool is_middling = block->run >= STREAM_WHOLE_RUN_END && block->run < STREAM_RUN_END;
    const bool is_huge = block->total_nbytes >= 2 * VEC_STREAM_NBYTES;
    for (int64_t i = 0; i < outer.extent; i++) {
        for (int64_t j = 0; j < inner.extent; j++) {
            char *to = dst + i * outer.dst_step + j * inner.dst_step;
            const char *from = src + i * outer.src_step + j * inner.src_step;
            bool is_aligned = (uintptr_t)to % VEC_LINE_NBYTES == 0;
            if (is_middling && (is_aligned || !is_huge)) {
                memcpy(to, from, (size_t)block->run);
            }
            else {
                vec_stream_run(to, from, block->run);
            }
        }
    }
}

/* ---- which ---- */

/* Runs of the source that lie a multiple of 4 KiB apart share one set of the first cache.
 * When as many loads as the processor can start are under way they hinder one another there:
 * with a pause after each, a column of 4096 rows takes half the time.  Measured on x86-64
 * alone. */
static bool
is_crowded(const copy_block *block)
{
#if defined(__x86_64__)
    int64_t step = block->inner.src_step;
    return step != 0 && step % CROWDED_STEP == 0 && block->inner.extent >= CROWDED_MIN_ROWS;
#else
    (void)block;
    return false;
#endif
}

#define KERNEL(item) (is_crowded(block) ? move_crowded_##item : move_##item)

static copy_kernel
small_run_kernel(const copy_block *block)
{
    int64_t run = block->run;
    switch (run) {
    case 1: return KERNEL(item_8);
    case 2: return KERNEL(item_16);
    case 4: return KERNEL(item_32);
    case 8: return KERNEL(item_64);
    case 16: return KERNEL(item_128);
    default:
        return run < 4    ? KERNEL(pair_16)
               : run < 8  ? KERNEL(pair_32)
               : run < 16 ? KERNEL(pair_64)
                          : KERNEL(pair_128);
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
    bool every_second = block->inner.dst_step == run && block->inner.src_step == 2 * run;
    if (every_second && every_second_kernel(run) != NULL) {
        return every_second_kernel(run);
    }
    if (run <= 32) {
        return small_run_kernel(block);
    }
    if (run >= LONG_RUN_NBYTES) {
        return move_long;
    }
    int64_t enough = run < STREAM_RUN_END ? VEC_STREAM_NBYTES : 8 * VEC_STREAM_NBYTES;
    bool streams = run >= STREAM_RUN_NBYTES && block->total_nbytes >= enough;
    return streams ? stream_runs : move_any;
}
