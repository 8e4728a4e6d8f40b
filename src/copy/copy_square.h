/* copy_square.h: transposes a square of elements in vector registers.
 *
 * Owns:    nothing.
 * Threads: pure functions over the caller's memory.
 * Portable: GCC and clang share this vector language; a zip is one instruction on arm64 and on
 *          x86-64.
 *
 * Zip the first half of the rows with the second half:
 *
 *     a0 a1 a2 a3         a0 c0 a1 c1         a0 b0 c0 d0
 *     b0 b1 b2 b3   zip   a2 c2 a3 c3   zip   a1 b1 c1 d1
 *     c0 c1 c2 c3   -->   b0 d0 b1 d1   -->   a2 b2 c2 d2
 *     d0 d1 d2 d3         b2 d2 b3 d3         a3 b3 c3 d3
 *
 * Each zip rotates the bits of an element's index by one place.  After log2(side) of them the
 * bits of its row and those of its column have changed places.
 */
#ifndef MD_COPY_SQUARE_H
#define MD_COPY_SQUARE_H

#include "copy/copy_run.h"

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

#endif /* MD_COPY_SQUARE_H */
