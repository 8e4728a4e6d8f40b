/* copy_fill.c: one item of the source over a contiguous row of the destination. */
#include "copy/copy_kernels.h"
#include "copy/copy_vector.h"

#define FILL_MAX_RUN (1 << 18) /* longer items are as fast one by one */
#define SEED_NBYTES (32 << 10) /* a longer one would not stay in the first cache */
#define STRING_NBYTES 2048     /* from here to four times as much, vectors beat memset */
#define STREAM_ROW_NBYTES 512  /* shorter rows have too few whole lines */
#define STREAM_TOTAL_NBYTES (4 * VEC_STREAM_NBYTES) /* there is no source to make room for */

#define REPEAT_ITEM(size, type) \
    case size: { \
        type value; \
        memcpy(&value, item, size); \
        return (vec)((vec_of_##size){0} + value); \
    }

/* `item` has 1, 2, 4, 8 or 16 bytes. */
static vec
repeat_item(const char *item, int64_t run)
{
    switch (run) {
        REPEAT_ITEM(1, uint8_t)
        REPEAT_ITEM(2, uint16_t)
        REPEAT_ITEM(4, uint32_t)
        REPEAT_ITEM(8, uint64_t)
    default: return vec_load(item);
    }
}

/* As many whole groups of 128 bytes as the row has.  Returns how many bytes they are. */
static int64_t
fill_groups(char *row, int64_t row_nbytes, vec value)
{
    int64_t at = 0;
    for (; at + 8 * VEC_NBYTES <= row_nbytes; at += 8 * VEC_NBYTES) {
        VEC_UNROLL for (int64_t k = 0; k < 8 * VEC_NBYTES; k += VEC_NBYTES)
        {
            vec_store(row + at + k, value);
        }
    }
    return at;
}

#if defined(__x86_64__)
/* The same with stores of 32 bytes, for processors that have them. */
__attribute__((target("avx2"))) static int64_t
fill_groups_wide(char *row, int64_t row_nbytes, vec value)
{
    typedef uint8_t vec_wide __attribute__((vector_size(2 * VEC_NBYTES)));
    vec_wide pair;
    memcpy(&pair, &value, VEC_NBYTES);
    memcpy((char *)&pair + VEC_NBYTES, &value, VEC_NBYTES);
    int64_t at = 0;
    for (; at + 8 * VEC_NBYTES <= row_nbytes; at += 8 * VEC_NBYTES) {
        VEC_UNROLL for (int64_t k = 0; k < 8 * VEC_NBYTES; k += 2 * VEC_NBYTES)
        {
            memcpy(row + at + k, &pair, sizeof(pair));
        }
    }
    return at;
}
#define HAS_WIDE __builtin_cpu_supports("avx2")
#else
#define fill_groups_wide fill_groups
#define HAS_WIDE false
#endif

static int64_t
stream_groups(char *row, int64_t row_nbytes, vec value)
{
    int64_t at = 0;
    for (; at + VEC_NBYTES <= row_nbytes; at += VEC_NBYTES) {
        vec_stream(row + at, value);
    }
    return at;
}

/* `value` repeats with a period that divides 16, and the row has at least 16 bytes: the last
 * vector is moved back, by a multiple of the period, and overlaps. */
static void
fill_row_vectors(char *row, int64_t row_nbytes, vec value, bool stream)
{
    bool past = stream && (uintptr_t)row % VEC_NBYTES == 0;
    int64_t at = (past       ? stream_groups
                  : HAS_WIDE ? fill_groups_wide
                             : fill_groups)(row, row_nbytes, value);
    for (; at + VEC_NBYTES <= row_nbytes; at += VEC_NBYTES) {
        vec_store(row + at, value);
    }
    vec_store(row + row_nbytes - VEC_NBYTES, value);
}

/* The row begins with `done` bytes that are to be repeated: double them, then repeat
 * the seed. */
static void
repeat_seed(char *row, int64_t row_nbytes, int64_t done)
{
    int64_t seed = done;
    while (done < row_nbytes) {
        seed = done < SEED_NBYTES ? done : seed;
        int64_t nbytes = seed < row_nbytes - done ? seed : row_nbytes - done;
        memcpy(row + done, row, (size_t)nbytes);
        done += nbytes;
    }
}

/* An item that is a row itself, past the caches. */
static void
stream_items(char *row, int64_t row_nbytes, const char *item, int64_t run)
{
    for (int64_t at = 0; at < row_nbytes; at += run) {
        vec_stream_run(row + at, item, run);
    }
}

static void
fill_row(char *row, int64_t row_nbytes, const char *item, int64_t run, bool stream)
{
    bool divides = run <= VEC_NBYTES && (run & (run - 1)) == 0 && row_nbytes >= VEC_NBYTES;
    bool is_short = run == 1 && row_nbytes < STRING_NBYTES;
    bool may_be_string = is_short || row_nbytes >= 4 * STRING_NBYTES || !divides;
    if (!stream && may_be_string && memcmp(item, item + 1, (size_t)run - 1) == 0) {
        memset(row, item[0], (size_t)row_nbytes);
    }
    else if (divides) {
        fill_row_vectors(row, row_nbytes, repeat_item(item, run), stream);
    }
    else if (stream && run >= STREAM_ROW_NBYTES) {
        stream_items(row, row_nbytes, item, run);
    }
    else {
        memcpy(row, item, (size_t)run);
        repeat_seed(row, row_nbytes, run);
    }
}

static void
fill_rows(const copy_block *block, char *dst, const char *src)
{
    const copy_axis outer = block->outer;
    int64_t row_nbytes = block->inner.extent * block->run;
    bool stream = row_nbytes >= STREAM_ROW_NBYTES && block->total_nbytes >= STREAM_TOTAL_NBYTES;
    for (int64_t i = 0; i < outer.extent; i++) {
        fill_row(dst + i * outer.dst_step, row_nbytes, src + i * outer.src_step, block->run,
                 stream);
    }
}

copy_kernel
copy_fill_kernel(const copy_block *block)
{
    const copy_axis *inner = &block->inner;
    bool repeats = inner->src_step == 0 && inner->dst_step == block->run;
    return repeats && block->run <= FILL_MAX_RUN ? fill_rows : NULL;
}
