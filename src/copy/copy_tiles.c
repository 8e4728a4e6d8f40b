/* copy_tiles.c: two axes that change places: one is dense in the source, one in the destination.
 *
 *         source                            destination
 *         rows ->                           columns ->
 *     c  +------+------+--                r  +---+---+---+--
 *     o  |square|square|    each square   o  |   |   |   |      a tile is as many squares
 *     l  +------+------+--   is turned    w  +---+---+---+--    as the first cache holds,
 *     u  |square|square|       --->       s  |   |   |   |      in both
 *     m  +------+------+--                |  +---+---+---+--
 *     n  |      |                         v  |
 *
 * A tile is turned straight into its place, or, where its lines would push one another out of
 * the cache, into a buffer and from there row by row.
 */
#include <stdbool.h>
#include <stddef.h>

#include "copy/copy_roads.h"

/* ---- a square of elements, transposed in vector registers ----
 *
 * GCC and clang share this vector language; a zip is one instruction on arm64 and on x86-64.
 * Zip the first half of the rows with the second half:
 *
 *     a0 a1 a2 a3         a0 c0 a1 c1         a0 b0 c0 d0
 *     b0 b1 b2 b3   zip   a2 c2 a3 c3   zip   a1 b1 c1 d1
 *     c0 c1 c2 c3   -->   b0 d0 b1 d1   -->   a2 b2 c2 d2
 *     d0 d1 d2 d3         b2 d2 b3 d3         a3 b3 c3 d3
 *
 * Each zip rotates the bits of an element's index by one place.  After log2(side) of them the
 * bits of its row and those of its column have changed places. */

/* Elements along a side, by their size: a row is a vector of 16 bytes. */
#define SIDE_1 16
#define SIDE_2 8
#define SIDE_4 4
#define SIDE_8 2

typedef uint8_t vector_1 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint16_t vector_2 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint32_t vector_4 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint64_t vector_8 __attribute__((vector_size(16), may_alias, aligned(1)));

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (__typeof__(a)){__VA_ARGS__})
#endif

/* a0 b0 a1 b1 ...: of the lower halves of two vectors, and of the upper ones. */
#define ZIP_LOW_1(a, b) SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ZIP_HIGH_1(a, b) \
    SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define ZIP_LOW_2(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define ZIP_HIGH_2(a, b) SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define ZIP_LOW_4(a, b) SHUFFLE(a, b, 0, 4, 1, 5)
#define ZIP_HIGH_4(a, b) SHUFFLE(a, b, 2, 6, 3, 7)
#define ZIP_LOW_8(a, b) SHUFFLE(a, b, 0, 2)
#define ZIP_HIGH_8(a, b) SHUFFLE(a, b, 1, 3)

/* dst[i][j] = src[j][i]; the steps are bytes from row to row. */
#define DEFINE_SQUARE(size) \
    COPY_INLINE void square_##size(char *dst, int64_t dst_step, const char *src, \
                                   int64_t src_step) \
    { \
        vector_##size v[SIDE_##size], zipped[SIDE_##size]; \
        COPY_UNROLL(16) for (int i = 0; i < SIDE_##size; i++) \
        { \
            v[i] = *(const vector_##size *)(src + i * src_step); \
        } \
        COPY_UNROLL(16) for (int done = 1; done < SIDE_##size; done *= 2) \
        { \
            COPY_UNROLL(16) for (int i = 0; i < SIDE_##size / 2; i++) \
            { \
                zipped[2 * i] = ZIP_LOW_##size(v[i], v[i + SIDE_##size / 2]); \
                zipped[2 * i + 1] = ZIP_HIGH_##size(v[i], v[i + SIDE_##size / 2]); \
            } \
            COPY_UNROLL(16) for (int i = 0; i < SIDE_##size; i++) \
            { \
                v[i] = zipped[i]; \
            } \
        } \
        COPY_UNROLL(16) for (int i = 0; i < SIDE_##size; i++) \
        { \
            *(vector_##size *)(dst + i * dst_step) = v[i]; \
        } \
    }

DEFINE_SQUARE(1)
DEFINE_SQUARE(2)
DEFINE_SQUARE(4)
DEFINE_SQUARE(8)

/* any thread's stack has room for it */
#define BUFFER_NBYTES (COPY_FIRST_CACHE < 64 << 10 ? COPY_FIRST_CACHE / 2 : 32 << 10)
#define MOST_RUN 64  /* longer runs fill lines by themselves */
#define FEW_LINES 16 /* so few find room in any cache */
#define LINE_NBYTES 64
#define CROWDED_STEP (COPY_FIRST_CACHE / 32) /* a quarter of a way, of 8 */

static inline int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- one tile ---- */

/* Cover the tile with squares, along the source's rows.  The last ones are moved back and
 * overlap their neighbours. */
#define DEFINE_ROAD(size) \
    static void turn_##size(const copy_block *tile, char *dst, const char *src) \
    { \
        const copy_axis rows = tile->outer, columns = tile->inner; \
        if (rows.extent < SIDE_##size || columns.extent < SIDE_##size) { \
            copy_runs_road(tile)(tile, dst, src); \
            return; \
        } \
        for (int64_t j = 0; j < columns.extent; j += SIDE_##size) { \
            int64_t column = smaller(j, columns.extent - SIDE_##size), i = SIDE_##size; \
            char *to = dst + column * size; \
            const char *from = src + column * columns.src_step; \
            for (; i < rows.extent; i += SIDE_##size) { \
                square_##size(to, rows.dst_step, from, columns.src_step); \
                to += SIDE_##size * rows.dst_step; \
                from += SIDE_##size * size; \
            } \
            int64_t back = i - rows.extent; \
            square_##size(to - back * rows.dst_step, rows.dst_step, from - back * size, \
                          columns.src_step); \
        } \
    }

DEFINE_ROAD(1)
DEFINE_ROAD(2)
DEFINE_ROAD(4)
DEFINE_ROAD(8)

static bool
has_square(int64_t run)
{
    return run <= 8 && (run & (run - 1)) == 0;
}

static copy_road
turn_road(const copy_block *tile)
{
    switch (tile->run) {
    case 1: return turn_1;
    case 2: return turn_2;
    case 4: return turn_4;
    case 8: return turn_8;
    default: return copy_runs_road(tile);
    }
}

static void
turn_through_buffer(const copy_block *tile, char *dst, const char *src)
{
    char buffer[BUFFER_NBYTES] __attribute__((aligned(LINE_NBYTES)));
    const int64_t row_nbytes = tile->inner.extent * tile->run;
    copy_block packed = *tile;
    packed.outer.dst_step = row_nbytes;
    copy_road turn = turn_road(&packed);
    turn(&packed, buffer, src);
    for (int64_t i = 0; i < tile->outer.extent; i++) {
        copy_run(dst + i * tile->outer.dst_step, buffer + i * row_nbytes, row_nbytes);
    }
}

/* ---- tile by tile ---- */

/* Runs along each side of a tile.  Source and destination get half the cache each. */
static int64_t
tile_side(int64_t run)
{
    int64_t side = 1;
    while (4 * side * side * run <= BUFFER_NBYTES) {
        side *= 2;
    }
    return side;
}

/* Whether lines so many bytes apart share few places of the cache.  For lines a quarter of a way
 * apart it has room for 32, of 8 ways, and a side has 64. */
static bool
crowds(int64_t step)
{
    int64_t size = step < 0 ? -step : step;
    int64_t beyond = (size + LINE_NBYTES / 2) % CROWDED_STEP;
    return size > CROWDED_STEP / 2 && beyond < LINE_NBYTES;
}

static void
turn_tiles(const copy_block *block, char *dst, const char *src)
{
    const copy_axis rows = block->outer, columns = block->inner;
    const int64_t run = block->run, side = tile_side(run);
    /* without squares no source line is read whole at once: a buffer would not help */
    bool is_crowded = has_square(run) && (crowds(rows.dst_step) || crowds(columns.src_step));
    copy_road turn = is_crowded ? turn_through_buffer : turn_road(block);
    copy_block tile = *block;
    for (int64_t j = 0; j < columns.extent; j += side) {
        tile.inner.extent = smaller(side, columns.extent - j);
        for (int64_t i = 0; i < rows.extent; i += side) {
            tile.outer.extent = smaller(side, rows.extent - i);
            turn(&tile, dst + i * rows.dst_step + j * run,
                 src + j * columns.src_step + i * run);
        }
    }
}

copy_road
copy_tiles_road(const copy_block *block)
{
    const copy_axis *rows = &block->outer, *columns = &block->inner;
    bool is_turned = columns->dst_step == block->run && rows->src_step == block->run;
    if (!is_turned || block->run > MOST_RUN) {
        return NULL;
    }
    bool is_small = rows->extent <= FEW_LINES && columns->extent <= FEW_LINES;
    return is_small ? turn_road(block) : turn_tiles;
}
