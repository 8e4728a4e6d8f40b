/* copy_fill.c: one item of the source over a contiguous row of the destination. */
#include "copy_kernels.h"
#include "copy_vector.h"

#define FILL_MAX_RUN 256      /* longer items are as fast one by one */
#define SEED_NBYTES 1024      /* a seed this long is worth a memcpy */
#define STREAM_ROW_NBYTES 512 /* shorter rows have too few whole lines */
#define STREAM_TOTAL_NBYTES (48 << 20) /* smaller copies may stay in a cache */

/* `item` has 1, 2, 4, 8 or 16 bytes. */
static vec
repeat_item(const char *item, int64_t run)
{
    char bytes[VEC_NBYTES];
    for (int64_t at = 0; at < VEC_NBYTES; at += run) {
        memcpy(bytes + at, item, (size_t)run);
    }
    return vec_load(bytes);
}

/* `value` repeats with a period that divides 16, and the row has at least 16 bytes: the last
 * vector is moved back, by a multiple of the period, and overlaps. */
static void
fill_row_vectors(char *row, int64_t row_nbytes, vec value, bool stream)
{
    int64_t at = 0, last = row_nbytes - VEC_NBYTES;
    if (stream && (uintptr_t)row % VEC_NBYTES == 0) {
        for (; at < last; at += VEC_NBYTES) {
            vec_stream(row + at, value);
        }
    }
    for (; at < last; at += VEC_NBYTES) {
        vec_store(row + at, value);
    }
    vec_store(row + last, value);
}

/* An item of any size: write a seed by doubling, then repeat the seed. */
static void
fill_row_doubling(char *row, int64_t row_nbytes, const char *item, int64_t run)
{
    memcpy(row, item, (size_t)run);
    int64_t done = run, seed = run;
    while (done < row_nbytes) {
        seed = done < SEED_NBYTES ? done : seed;
        int64_t nbytes = seed < row_nbytes - done ? seed : row_nbytes - done;
        memcpy(row + done, row, (size_t)nbytes);
        done += nbytes;
    }
}

static void
fill_row(char *row, int64_t row_nbytes, const char *item, int64_t run, bool stream)
{
    bool divides = run <= VEC_NBYTES && (run & (run - 1)) == 0;
    if (memcmp(item, item + 1, (size_t)run - 1) == 0) {
        memset(row, item[0], (size_t)row_nbytes);
    }
    else if (divides && row_nbytes >= VEC_NBYTES) {
        fill_row_vectors(row, row_nbytes, repeat_item(item, run), stream);
    }
    else {
        fill_row_doubling(row, row_nbytes, item, run);
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
    if (stream) {
        vec_stream_end();
    }
}

copy_kernel
copy_fill_kernel(const copy_block *block)
{
    const copy_axis *inner = &block->inner;
    bool repeats = inner->src_step == 0 && inner->dst_step == block->run;
    return repeats && block->run <= FILL_MAX_RUN ? fill_rows : NULL;
}
