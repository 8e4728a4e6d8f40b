/* copy_turn.c: two axes that change places: one contiguous in the source, one in the destination.
 *
 * The smallest piece is a block held in vector registers.  A matrix of R rows is transposed by
 * log2(R) perfect shuffles of all its elements: each shuffle rotates the bits of every element's
 * index by one place, so log2(R) of them move the row's bits below the column's.
 *
 * Blocks fill tiles, tiles fill the matrix, by one of three roads (measured, see
 * benchmarks/bench_copy.py): straight into place; through a small buffer, so that a destination
 * line is written whole, and a source line read whole, where rows lie so that they push one another
 * out of the first cache; or through the buffer and past the caches, when the
 * destination is larger than they are.
 */
#include <stdbool.h>

#include "copy_kernels.h"
#include "copy_vector.h"

/* dst[i * dst_step + j * itemsize] = src[j * src_step + i * itemsize], i < nrows, j < ncolumns */
typedef void (*turn_tile)(char *dst, int64_t dst_step, const char *src, int64_t src_step,
                          int64_t nrows, int64_t ncolumns);

#define BUFFER_NBYTES (32 << 10)
#define STREAM_TOTAL_NBYTES (16 << 20) /* a destination this large is better not read first */

static inline int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- blocks ---- */

/* One shuffle of `count` vectors: the first half of all elements zipped with the second. */
#define DEFINE_SHUFFLE(size)                                                                   \
    VEC_INLINE void shuffle_##size(vec *v, int count)                                          \
    {                                                                                          \
        vec zipped[VEC_NBYTES];                                                                \
        VEC_UNROLL for (int i = 0; i < count / 2; i++)                                         \
        {                                                                                      \
            zipped[2 * i] = vec_zip_low_##size(v[i], v[i + count / 2]);                        \
            zipped[2 * i + 1] = vec_zip_high_##size(v[i], v[i + count / 2]);                   \
        }                                                                                      \
        VEC_UNROLL for (int i = 0; i < count; i++)                                             \
        {                                                                                      \
            v[i] = zipped[i];                                                                  \
        }                                                                                      \
    }

/* A square block of rows of 16 bytes. */
#define DEFINE_BLOCK(size)                                                                     \
    VEC_INLINE void turn_block_##size(char *dst, int64_t dst_step, const char *src,            \
                                      int64_t src_step)                                        \
    {                                                                                          \
        enum { SIDE = VEC_NBYTES / size };                                                     \
        vec v[SIDE];                                                                           \
        VEC_UNROLL for (int i = 0; i < SIDE; i++)                                              \
        {                                                                                      \
            v[i] = vec_load(src + i * src_step);                                               \
        }                                                                                      \
        VEC_UNROLL for (int done = 1; done < SIDE; done *= 2)                                  \
        {                                                                                      \
            shuffle_##size(v, SIDE);                                                           \
        }                                                                                      \
        VEC_UNROLL for (int i = 0; i < SIDE; i++)                                              \
        {                                                                                      \
            vec_store(dst + i * dst_step, v[i]);                                               \
        }                                                                                      \
    }

/* A square block of rows of 8 bytes, two rows in a vector. */
#define DEFINE_HALF_BLOCK(size)                                                                \
    VEC_INLINE void turn_half_block_##size(char *dst, int64_t dst_step, const char *src,       \
                                           int64_t src_step)                                   \
    {                                                                                          \
        enum { SIDE = VEC_NBYTES / 2 / size };                                                 \
        vec v[SIDE / 2];                                                                       \
        VEC_UNROLL for (int i = 0; i < SIDE; i += 2)                                           \
        {                                                                                      \
            v[i / 2] = vec_load_halves(src + i * src_step, src + (i + 1) * src_step);          \
        }                                                                                      \
        VEC_UNROLL for (int done = 1; done < SIDE; done *= 2)                                  \
        {                                                                                      \
            shuffle_##size(v, SIDE / 2);                                                       \
        }                                                                                      \
        VEC_UNROLL for (int i = 0; i < SIDE; i += 2)                                           \
        {                                                                                      \
            vec_store_halves(dst + i * dst_step, dst + (i + 1) * dst_step, v[i / 2]);          \
        }                                                                                      \
    }

/* Items as large as a vector need no shuffle; four by four use lines of 64 bytes whole. */
VEC_INLINE void
turn_block_16(char *dst, int64_t dst_step, const char *src, int64_t src_step)
{
    vec v[16];
    VEC_UNROLL for (int k = 0; k < 16; k++)
    {
        v[k] = vec_load(src + k / 4 * src_step + k % 4 * 16);
    }
    VEC_UNROLL for (int k = 0; k < 16; k++)
    {
        vec_store(dst + k / 4 * dst_step + k % 4 * 16, v[k % 4 * 4 + k / 4]);
    }
}

/* ---- tiles ---- */

/* Cover the tile with blocks of `side`; the last ones are moved back and overlap their
 * neighbours, which writes some elements twice and needs no loop for the rest.  Along the
 * destination's rows first. */
#define BY_ROWS(block, side, size)                                                             \
    for (int64_t i = 0; i < nrows; i += (side)) {                                              \
        int64_t row = smaller(i, nrows - (side));                                              \
        char *to = dst + row * dst_step;                                                       \
        const char *from = src + row * (size);                                                 \
        for (int64_t j = (side); j < ncolumns; j += (side)) {                                  \
            block(to, dst_step, from, src_step);                                               \
            to += (side) * (size);                                                             \
            from += (side) * src_step;                                                         \
        }                                                                                      \
        block(dst + row * dst_step + (ncolumns - (side)) * (size), dst_step,                   \
              src + (ncolumns - (side)) * src_step + row * (size), src_step);                  \
    }

/* Along the source's rows first: for a destination that stays in the first cache. */
#define BY_COLUMNS(block, side, size)                                                          \
    for (int64_t j = 0; j < ncolumns; j += (side)) {                                           \
        int64_t column = smaller(j, ncolumns - (side));                                        \
        char *to = dst + column * (size);                                                      \
        const char *from = src + column * src_step;                                            \
        for (int64_t i = (side); i < nrows; i += (side)) {                                     \
            block(to, dst_step, from, src_step);                                               \
            to += (side) * dst_step;                                                           \
            from += (side) * (size);                                                           \
        }                                                                                      \
        block(dst + (nrows - (side)) * dst_step + column * (size), dst_step,                   \
              src + column * src_step + (nrows - (side)) * (size), src_step);                  \
    }

/* Items along each side of a block, by their size. */
#define SIDE_1 16
#define SIDE_2 8
#define SIDE_4 4
#define SIDE_8 2
#define SIDE_16 4

#define TILE_PARAMETERS                                                                        \
    char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t nrows,             \
        int64_t ncolumns

#define ONE_BY_ONE(type)                                                                       \
    for (int64_t i = 0; i < nrows; i++) {                                                      \
        char *to = dst + i * dst_step;                                                         \
        const char *from = src + i * (int64_t)sizeof(type);                                    \
        for (int64_t j = 0; j < ncolumns; j++) {                                               \
            type item;                                                                         \
            memcpy(&item, from, sizeof(type));                                                 \
            memcpy(to, &item, sizeof(type));                                                   \
            to += sizeof(type);                                                                \
            from += src_step;                                                                  \
        }                                                                                      \
    }

#define DEFINE_TILE_WITH_HALVES(name, size, type, ORDER)                                            \
    static void name(TILE_PARAMETERS)                                                          \
    {                                                                                          \
        int64_t shorter = smaller(nrows, ncolumns);                                            \
        if (shorter >= SIDE_##size) {                                                    \
            ORDER(turn_block_##size, SIDE_##size, size)                                  \
        }                                                                                      \
        else if (shorter >= SIDE_##size / 2) {                                           \
            ORDER(turn_half_block_##size, SIDE_##size / 2, size)                         \
        }                                                                                      \
        else {                                                                                 \
            ONE_BY_ONE(type)                                                     \
        }                                                                                      \
    }

#define DEFINE_TILE(name, size, type, ORDER)                                                        \
    static void name(TILE_PARAMETERS)                                                          \
    {                                                                                          \
        if (smaller(nrows, ncolumns) >= SIDE_##size) {                                   \
            ORDER(turn_block_##size, SIDE_##size, size)                                  \
        }                                                                                      \
        else {                                                                                 \
            ONE_BY_ONE(type)                                                     \
        }                                                                                      \
    }

DEFINE_SHUFFLE(1)
DEFINE_SHUFFLE(2)
DEFINE_SHUFFLE(4)
DEFINE_SHUFFLE(8)
DEFINE_BLOCK(1)
DEFINE_BLOCK(2)
DEFINE_BLOCK(4)
DEFINE_BLOCK(8)
DEFINE_HALF_BLOCK(1)
DEFINE_HALF_BLOCK(2)
DEFINE_TILE_WITH_HALVES(by_rows_1, 1, uint8_t, BY_ROWS)
DEFINE_TILE_WITH_HALVES(by_rows_2, 2, uint16_t, BY_ROWS)
DEFINE_TILE(by_rows_4, 4, uint32_t, BY_ROWS)
DEFINE_TILE(by_rows_8, 8, uint64_t, BY_ROWS)
DEFINE_TILE_WITH_HALVES(by_columns_1, 1, uint8_t, BY_COLUMNS)
DEFINE_TILE_WITH_HALVES(by_columns_2, 2, uint16_t, BY_COLUMNS)
DEFINE_TILE(by_columns_4, 4, uint32_t, BY_COLUMNS)
DEFINE_TILE(by_columns_8, 8, uint64_t, BY_COLUMNS)

/* Here it costs more to write an item twice than to go without blocks. */
static void
whole_blocks_16(TILE_PARAMETERS)
{
    if ((nrows | ncolumns) % SIDE_16 == 0) {
        BY_ROWS(turn_block_16, SIDE_16, 16)
    }
    else {
        ONE_BY_ONE(vec)
    }
}

/* Indexed by log2 of the item size. */
static const turn_tile tiles_by_rows[] = {by_rows_1, by_rows_2, by_rows_4, by_rows_8,
                                          whole_blocks_16};
static const turn_tile tiles_by_columns[] = {by_columns_1, by_columns_2, by_columns_4,
                                             by_columns_8, whole_blocks_16};

/* ---- roads ---- */

typedef struct {
    int log_itemsize;
    int64_t itemsize;
    int64_t nrows, ncolumns;    /* of the destination; ncolumns in one band */
    int64_t dst_step, src_step; /* bytes from row to row, from column to column */
    int64_t nbands, band_step;  /* bands side by side in dst, bytes apart in src */
    int64_t row_side, side;     /* rows and columns of a tile */
} turn;

/* Inside a tile, go along the side with the longer step: few of its lines are open at a time,
 * and the many that are lie on the side where they are near one another. */
static void
turn_straight(const turn *t, char *dst, const char *src)
{
    bool by_columns = t->src_step > 2 * t->dst_step;
    turn_tile tile = (by_columns ? tiles_by_columns : tiles_by_rows)[t->log_itemsize];
    for (int64_t i = 0; i < t->nrows; i += t->row_side) {
        for (int64_t j = 0; j < t->ncolumns; j += t->side) {
            tile(dst + i * t->dst_step + j * t->itemsize, t->dst_step,
                 src + j * t->src_step + i * t->itemsize, t->src_step,
                 smaller(t->row_side, t->nrows - i), smaller(t->side, t->ncolumns - j));
        }
    }
}

/* Write a tile out of the buffer, row by row. */
static void
write_rows(const char *buffer, int64_t row_nbytes, int64_t nrows, char *dst, int64_t dst_step,
           bool stream)
{
    for (int64_t i = 0; i < nrows; i++) {
        const char *row = buffer + i * row_nbytes;
        if (!stream) {
            memcpy(dst + i * dst_step, row, (size_t)row_nbytes);
            continue;
        }
        for (int64_t at = 0; at < row_nbytes; at += VEC_NBYTES) {
            vec_stream(dst + i * dst_step + at, vec_load(row + at));
        }
    }
}

static void
turn_through_buffer(const turn *t, char *dst, const char *src, bool stream)
{
    char buffer[BUFFER_NBYTES] __attribute__((aligned(VEC_LINE_NBYTES)));
    turn_tile tile = tiles_by_columns[t->log_itemsize];
    for (int64_t j = 0; j < t->ncolumns; j += t->side) {
        int64_t ncolumns = smaller(t->side, t->ncolumns - j);
        int64_t row_nbytes = ncolumns * t->itemsize;
        for (int64_t i = 0; i < t->nrows; i += t->row_side) {
            int64_t nrows = smaller(t->row_side, t->nrows - i);
            tile(buffer, row_nbytes, src + j * t->src_step + i * t->itemsize, t->src_step, nrows,
                 ncolumns);
            write_rows(buffer, row_nbytes, nrows, dst + i * t->dst_step + j * t->itemsize,
                       t->dst_step, stream);
        }
    }
}

/* Rows shorter than a tile: several bands make one row of the buffer. */
static void
turn_bands(const turn *t, char *dst, const char *src, bool stream)
{
    char buffer[BUFFER_NBYTES] __attribute__((aligned(VEC_LINE_NBYTES)));
    turn_tile tile = tiles_by_columns[t->log_itemsize];
    int64_t band_nbytes = t->ncolumns * t->itemsize, bands = t->side / t->ncolumns;
    for (int64_t j = 0; j < t->nbands; j += bands) {
        int64_t nbands = smaller(bands, t->nbands - j);
        for (int64_t i = 0; i < t->nrows; i += t->row_side) {
            int64_t nrows = smaller(t->row_side, t->nrows - i);
            for (int64_t band = 0; band < nbands; band++) {
                tile(buffer + band * band_nbytes, nbands * band_nbytes,
                     src + (j + band) * t->band_step + i * t->itemsize, t->src_step, nrows,
                     t->ncolumns);
            }
            write_rows(buffer, nbands * band_nbytes, nrows,
                       dst + i * t->dst_step + j * band_nbytes, t->dst_step, stream);
        }
    }
}

static void
turn_part(const turn *t, int64_t first, int64_t end, char *dst, const char *src, bool stream)
{
    turn part = *t;
    part.ncolumns = end - first;
    dst += first * t->itemsize;
    src += first * t->src_step;
    if (stream) {
        turn_through_buffer(&part, dst, src, true);
    }
    else {
        turn_straight(&part, dst, src);
    }
}

/* Whole lines of the destination are streamed; what each row has before and after goes straight. */
static void
turn_streaming(const turn *t, char *dst, const char *src)
{
    int64_t line = VEC_LINE_NBYTES / t->itemsize;
    int64_t head = (int64_t)(-(uintptr_t)dst % VEC_LINE_NBYTES) / t->itemsize;
    int64_t tail = t->ncolumns - (t->ncolumns - head) % line;
    turn_part(t, 0, head, dst, src, false);
    turn_part(t, head, tail, dst, src, true);
    turn_part(t, tail, t->ncolumns, dst, src, false);
    vec_stream_end();
}

/* All rows lie in the same way on the lines, and the lines shared between rows are few. */
static bool
can_stream(const turn *t, const char *dst)
{
    int64_t row_nbytes = t->ncolumns * t->itemsize;
    bool whole = (uintptr_t)dst % VEC_LINE_NBYTES == 0 && row_nbytes % VEC_LINE_NBYTES == 0;
    return t->dst_step % VEC_LINE_NBYTES == 0 && (uintptr_t)dst % (uintptr_t)t->itemsize == 0 &&
           row_nbytes >= (whole ? 2 : 32) * VEC_LINE_NBYTES;
}

static bool
can_stream_bands(const turn *t, const char *dst)
{
    int64_t line = VEC_LINE_NBYTES, row_nbytes = t->nbands * t->ncolumns * t->itemsize;
    return (uintptr_t)dst % VEC_LINE_NBYTES == 0 && t->dst_step % line == 0 &&
           row_nbytes % line == 0 && line % (t->ncolumns * t->itemsize) == 0;
}

/* Lines whose addresses differ by a multiple of 4 KiB share one set of the usual first cache;
 * a step near 2 or 4 KiB puts all rows of a tile into one or two sets. */
static bool
crowds_cache(int64_t step)
{
    int64_t beyond = (step + VEC_LINE_NBYTES / 2) % 2048;
    return step >= 2048 - VEC_LINE_NBYTES / 2 && beyond >= 0 && beyond < VEC_LINE_NBYTES;
}

static void
set_sides(turn *t, int64_t row_nbytes, int64_t column_nbytes)
{
    t->row_side = row_nbytes >> t->log_itemsize;
    t->side = column_nbytes >> t->log_itemsize;
}

static void
turn_matrix(turn *t, bool is_large, char *dst, const char *src)
{
    int64_t row_nbytes = t->ncolumns * t->itemsize;
    if (is_large && can_stream(t, dst)) {
        set_sides(t, 128, row_nbytes <= 512 && t->itemsize > 1 ? row_nbytes : 128);
        turn_streaming(t, dst, src);
    }
    else if (!is_large && t->itemsize < 16 && crowds_cache(t->src_step) &&
             row_nbytes >= VEC_LINE_NBYTES) {
        int64_t nbytes = t->itemsize == 1 ? 128 : 256;
        set_sides(t, nbytes, nbytes);
        turn_through_buffer(t, dst, src, false);
    }
    else {
        int64_t nbytes = is_large ? 512 : t->dst_step % 1024 == 0 ? 128 : 256;
        set_sides(t, nbytes, t->itemsize == 16 ? 2048 : nbytes);
        turn_straight(t, dst, src);
    }
}

static void
turn_block(const copy_block *block, char *dst, const char *src)
{
    turn t = {
        .log_itemsize = __builtin_ctzll((unsigned long long)block->run),
        .itemsize = block->run,
        .nrows = block->outer.extent,
        .ncolumns = block->inner.extent,
        .dst_step = block->outer.dst_step,
        .src_step = block->inner.src_step,
        .nbands = block->band.extent,
        .band_step = block->band.src_step,
    };
    bool is_large = block->total_nbytes >= STREAM_TOTAL_NBYTES;
    if (t.nbands == 1) {
        turn_matrix(&t, is_large, dst, src);
        return;
    }
    bool stream = is_large && can_stream_bands(&t, dst);
    set_sides(&t, 128, 256);
    turn_bands(&t, dst, src, stream);
    if (stream) {
        vec_stream_end();
    }
}

copy_kernel
copy_turn_kernel(const copy_block *block)
{
    bool is_turned = block->inner.dst_step == block->run && block->outer.src_step == block->run;
    bool has_tile = block->run <= 16 && (block->run & (block->run - 1)) == 0;
    return is_turned && has_tile ? turn_block : NULL;
}
