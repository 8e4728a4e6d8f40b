/* copy_turn.c: two axes that change places: one contiguous in the source, one in the
 * destination.
 *
 * The smallest piece is a block held in vector registers.  A matrix of R rows is transposed by
 * log2(R) perfect shuffles of all its elements: each shuffle rotates the bits of every
 * element's index by one place, so log2(R) of them move the row's bits below the column's.
 *
 * Blocks fill tiles, tiles fill the matrix, by one of four roads (measured, see
 * benchmarks/bench_copy.py): straight into place; through a small buffer, so that a
 * destination line is written whole, and a source line read whole, where rows lie so that they
 * push one another out of the first cache; and, when the destination is large, past the
 * caches: line by line of the source, or through the buffer where its lines push one another
 * out or the destination's rows do not begin on 16 bytes.
 */
#include <stdbool.h>

#include "copy/copy_kernels.h"
#include "copy/copy_vector.h"

/* dst[i * dst_step + j * itemsize] = src[j * src_step + i * itemsize], i < nrows, j
 * < ncolumns */
typedef void (*turn_tile)(char *dst, int64_t dst_step, const char *src, int64_t src_step,
                          int64_t nrows, int64_t ncolumns);

#define BUFFER_NBYTES (32 << 10)
#define BUFFER_ROW_NBYTES 1024 /* of a tile whose rows begin anywhere on their lines */
#define LINE_COLUMNS \
    256 /* so many lines of the source, and the next ones, stay in the first cache */

static inline int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- blocks ---- */

/* One shuffle of `count` vectors: the first half of all elements zipped with the second. */
#define DEFINE_SHUFFLE(size) \
    VEC_INLINE void shuffle_##size(vec *v, int count) \
    { \
        vec zipped[VEC_NBYTES]; \
        VEC_UNROLL for (int i = 0; i < count / 2; i++) \
        { \
            zipped[2 * i] = vec_zip_low_##size(v[i], v[i + count / 2]); \
            zipped[2 * i + 1] = vec_zip_high_##size(v[i], v[i + count / 2]); \
        } \
        VEC_UNROLL for (int i = 0; i < count; i++) \
        { \
            v[i] = zipped[i]; \
        } \
    }

/* A square block of rows of 16 bytes; `STORE` is vec_store or vec_stream. */
#define DEFINE_BLOCK(name, size, STORE) \
    VEC_INLINE void name##_##size(char *dst, int64_t dst_step, const char *src, \
                                  int64_t src_step) \
    { \
        enum { SIDE = VEC_NBYTES / size }; \
        vec v[SIDE]; \
        VEC_UNROLL for (int i = 0; i < SIDE; i++) \
        { \
            v[i] = vec_load(src + i * src_step); \
        } \
        VEC_UNROLL for (int done = 1; done < SIDE; done *= 2) \
        { \
            shuffle_##size(v, SIDE); \
        } \
        VEC_UNROLL for (int i = 0; i < SIDE; i++) \
        { \
            STORE(dst + i * dst_step, v[i]); \
        } \
    }

/* A square block of rows of 8 bytes, two rows in a vector. */
#define DEFINE_HALF_BLOCK(size) \
    VEC_INLINE void turn_half_block_##size(char *dst, int64_t dst_step, const char *src, \
                                           int64_t src_step) \
    { \
        enum { SIDE = VEC_NBYTES / 2 / size }; \
        vec v[SIDE / 2]; \
        VEC_UNROLL for (int i = 0; i < SIDE; i += 2) \
        { \
            v[i / 2] = vec_load_halves(src + i * src_step, src + (i + 1) * src_step); \
        } \
        VEC_UNROLL for (int done = 1; done < SIDE; done *= 2) \
        { \
            shuffle_##size(v, SIDE / 2); \
        } \
        VEC_UNROLL for (int i = 0; i < SIDE; i += 2) \
        { \
            vec_store_halves(dst + i * dst_step, dst + (i + 1) * dst_step, v[i / 2]); \
        } \
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
#define BY_ROWS(block, side, size) \
    for (int64_t i = 0; i < nrows; i += (side)) { \
        int64_t row = smaller(i, nrows - (side)); \
        char *to = dst + row * dst_step; \
        const char *from = src + row * (size); \
        for (int64_t j = (side); j < ncolumns; j += (side)) { \
            block(to, dst_step, from, src_step); \
            to += (side) * (size); \
            from += (side) * src_step; \
        } \
        block(dst + row * dst_step + (ncolumns - (side)) * (size), dst_step, \
              src + (ncolumns - (side)) * src_step + row * (size), src_step); \
    }

/* Along the source's rows first: for a destination that stays in the first cache. */
#define BY_COLUMNS(block, side, size) \
    for (int64_t j = 0; j < ncolumns; j += (side)) { \
        int64_t column = smaller(j, ncolumns - (side)); \
        char *to = dst + column * (size); \
        const char *from = src + column * src_step; \
        for (int64_t i = (side); i < nrows; i += (side)) { \
            block(to, dst_step, from, src_step); \
            to += (side) * dst_step; \
            from += (side) * (size); \
        } \
        block(dst + (nrows - (side)) * dst_step + column * (size), dst_step, \
              src + column * src_step + (nrows - (side)) * (size), src_step); \
    }

/* Items along each side of a block, by their size. */
#define SIDE_1 16
#define SIDE_2 8
#define SIDE_4 4
#define SIDE_8 2
#define SIDE_16 4

#define TILE_PARAMETERS \
    char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t nrows, \
        int64_t ncolumns

#define ONE_BY_ONE(type) \
    for (int64_t i = 0; i < nrows; i++) { \
        char *to = dst + i * dst_step; \
        const char *from = src + i * (int64_t)sizeof(type); \
        for (int64_t j = 0; j < ncolumns; j++) { \
            type item; \
            memcpy(&item, from, sizeof(type)); \
            memcpy(to, &item, sizeof(type)); \
            to += sizeof(type); \
            from += src_step; \
        } \
    }

#define DEFINE_TILE_WITH_HALVES(name, size, type, ORDER) \
    static void name(TILE_PARAMETERS) \
    { \
        int64_t shorter = smaller(nrows, ncolumns); \
        if (shorter >= SIDE_##size) { \
            ORDER(turn_block_##size, SIDE_##size, size) \
        } \
        else if (shorter >= SIDE_##size / 2) { \
            ORDER(turn_half_block_##size, SIDE_##size / 2, size) \
        } \
        else { \
            ONE_BY_ONE(type) \
        } \
    }

#define DEFINE_TILE(name, size, type, ORDER) \
    static void name(TILE_PARAMETERS) \
    { \
        if (smaller(nrows, ncolumns) >= SIDE_##size) { \
            ORDER(turn_block_##size, SIDE_##size, size) \
        } \
        else { \
            ONE_BY_ONE(type) \
        } \
    }

DEFINE_SHUFFLE(1)
DEFINE_SHUFFLE(2)
DEFINE_SHUFFLE(4)
DEFINE_SHUFFLE(8)
DEFINE_BLOCK(turn_block, 1, vec_store)
DEFINE_BLOCK(turn_block, 2, vec_store)
DEFINE_BLOCK(turn_block, 4, vec_store)
DEFINE_BLOCK(turn_block, 8, vec_store)
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

/* Past the caches: `dst` and its steps are multiples of 16 bytes, and so is a row of the tile,
 * which has at least SIDE rows. */
#define DEFINE_STREAM_TILE(size) \
    DEFINE_BLOCK(stream_block, size, vec_stream) \
    static void stream_##size(TILE_PARAMETERS) \
    { \
        BY_ROWS(stream_block_##size, SIDE_##size, size) \
    }

DEFINE_STREAM_TILE(1)
DEFINE_STREAM_TILE(2)
DEFINE_STREAM_TILE(4)
DEFINE_STREAM_TILE(8)

static void
stream_16(TILE_PARAMETERS)
{
    for (int64_t i = 0; i < nrows; i++) {
        for (int64_t j = 0; j < ncolumns; j++) {
            vec_stream(dst + i * dst_step + j * 16, vec_load(src + j * src_step + i * 16));
        }
    }
}

/* Indexed by log2 of the item size. */
static const turn_tile tiles_streamed[] = {stream_1, stream_2, stream_4, stream_8, stream_16};
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
        if (stream) {
            vec_stream_run(dst + i * dst_step, row, row_nbytes);
        }
        else {
            memcpy(dst + i * dst_step, row, (size_t)row_nbytes);
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
            tile(buffer, row_nbytes, src + j * t->src_step + i * t->itemsize, t->src_step,
                 nrows, ncolumns);
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

/* Each line of the source is read once and feeds as many rows; meanwhile the next ones come. */
static void
turn_by_lines(const turn *t, char *dst, const char *src)
{
    turn_tile tile = tiles_streamed[t->log_itemsize];
    for (int64_t j = 0; j < t->ncolumns; j += t->side) {
        int64_t ncolumns = smaller(t->side, t->ncolumns - j);
        for (int64_t i = 0; i < t->nrows; i += t->row_side) {
            int64_t row = smaller(i, t->nrows - t->row_side);
            const char *from = src + j * t->src_step + row * t->itemsize;
            for (int64_t k = 0; k < ncolumns; k++) {
                __builtin_prefetch(from + k * t->src_step + VEC_LINE_NBYTES);
            }
            tile(dst + row * t->dst_step + j * t->itemsize, t->dst_step, from, t->src_step,
                 t->row_side, ncolumns);
        }
    }
}

static void
turn_buffered_stream(const turn *t, char *dst, const char *src)
{
    turn_through_buffer(t, dst, src, true);
}

/* `road` streams the columns that fill whole units of `unit_nbytes` in every row; the others go
 * straight. */
static void
turn_streaming(const turn *t, char *dst, const char *src, int64_t unit_nbytes,
               void (*road)(const turn *, char *, const char *))
{
    int64_t unit = unit_nbytes / t->itemsize;
    int64_t head = (int64_t)(-(uintptr_t)dst % (uintptr_t)unit_nbytes) / t->itemsize;
    int64_t firsts[] = {0, head, t->ncolumns - (t->ncolumns - head) % unit, t->ncolumns};
    for (int i = 0; i < 3; i++) {
        turn part = *t;
        part.ncolumns = firsts[i + 1] - firsts[i];
        (i == 1 ? road : turn_straight)(&part, dst + firsts[i] * t->itemsize,
                                        src + firsts[i] * t->src_step);
    }
}

/* All rows lie in the same way on units of that size. */
static bool
is_aligned(const turn *t, const char *dst, int64_t unit_nbytes)
{
    return t->dst_step % unit_nbytes == 0 && (uintptr_t)dst % (uintptr_t)t->itemsize == 0;
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

/* A destination that is larger than the caches.  False: its rows are too short. */
static bool
turn_large_matrix(turn *t, char *dst, const char *src)
{
    int64_t row_nbytes = t->ncolumns * t->itemsize;
    if (row_nbytes < 2 * VEC_LINE_NBYTES) {
        return false;
    }
    if (!crowds_cache(t->src_step) && is_aligned(t, dst, VEC_NBYTES) &&
        t->nrows * t->itemsize >= VEC_LINE_NBYTES) {
        t->row_side = VEC_LINE_NBYTES / t->itemsize;
        t->side = LINE_COLUMNS;
        turn_streaming(t, dst, src, VEC_NBYTES, turn_by_lines);
    }
    else if (is_aligned(t, dst, VEC_LINE_NBYTES)) {
        set_sides(t, 128, row_nbytes <= 512 && t->itemsize > 1 ? row_nbytes : 128);
        turn_streaming(t, dst, src, VEC_LINE_NBYTES, turn_buffered_stream);
    }
    else {
        set_sides(t, VEC_LINE_NBYTES,
                  smaller(BUFFER_ROW_NBYTES, BUFFER_NBYTES / VEC_LINE_NBYTES * t->itemsize));
        turn_buffered_stream(t, dst, src);
    }
    return true;
}

static void
turn_matrix(turn *t, bool is_large, char *dst, const char *src)
{
    int64_t row_nbytes = t->ncolumns * t->itemsize;
    if (is_large && turn_large_matrix(t, dst, src)) {
        return;
    }
    if (!is_large && t->itemsize < 16 && crowds_cache(t->src_step) &&
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
    bool is_large = block->total_nbytes >= VEC_STREAM_NBYTES;
    if (t.nbands == 1) {
        turn_matrix(&t, is_large, dst, src);
        return;
    }
    bool stream = is_large && can_stream_bands(&t, dst);
    set_sides(&t, 128, 256);
    turn_bands(&t, dst, src, stream);
}

copy_kernel
copy_turn_kernel(const copy_block *block)
{
    bool is_turned = block->inner.dst_step == block->run && block->outer.src_step == block->run;
    bool has_tile = block->run <= 16 && (block->run & (block->run - 1)) == 0;
    return is_turned && has_tile ? turn_block : NULL;
}
