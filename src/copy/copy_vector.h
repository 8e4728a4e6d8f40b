/* copy_vector.h: 16 bytes at a time, in the vector language that GCC and clang share.
 *
 * Owns:    nothing.  One source for SSE2 and NEON: the compiler turns each shuffle below into
 *          one or a few instructions of the machine.
 * Units:   the suffix of a shuffle is the size of the elements it moves, in bytes.
 * Order:   element 0 is the one at the lowest address.
 */
#ifndef MD_COPY_VECTOR_H
#define MD_COPY_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define VEC_NBYTES 16
#define VEC_LINE_NBYTES 64          /* what a streaming store should fill whole */
#define VEC_STREAM_NBYTES (6 << 20) /* a smaller copy is better left in the caches (measured) */

typedef uint8_t vec __attribute__((vector_size(VEC_NBYTES)));
typedef uint8_t vec_of_1 __attribute__((vector_size(VEC_NBYTES)));
typedef uint16_t vec_of_2 __attribute__((vector_size(VEC_NBYTES)));
typedef uint32_t vec_of_4 __attribute__((vector_size(VEC_NBYTES)));
typedef uint64_t vec_of_8 __attribute__((vector_size(VEC_NBYTES)));

/* GCC unrolls short loops over arrays of vectors only when told to; clang does it by itself. */
#if defined(__clang__)
#define VEC_UNROLL
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))

/* GCC has __builtin_shufflevector from version 12 on. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define VEC_SHUFFLE(type, a, b, ...) \
    (vec) __builtin_shufflevector((type)(a), (type)(b), __VA_ARGS__)
#endif
#endif
#if !defined(VEC_SHUFFLE)
#define VEC_SHUFFLE(type, a, b, ...) \
    (vec) __builtin_shuffle((type)(a), (type)(b), (type){__VA_ARGS__})
#endif

VEC_INLINE vec
vec_load(const char *from) /* any alignment */
{
    vec value;
    memcpy(&value, from, sizeof(value));
    return value;
}

VEC_INLINE void
vec_store(char *to, vec value) /* any alignment */
{
    memcpy(to, &value, sizeof(value));
}

VEC_INLINE vec
vec_load_halves(const char *low, const char *high) /* 8 bytes of each */
{
    uint64_t halves[2];
    memcpy(&halves[0], low, 8);
    memcpy(&halves[1], high, 8);
    return (vec)(vec_of_8){halves[0], halves[1]};
}

VEC_INLINE void
vec_store_halves(char *low, char *high, vec value)
{
    uint64_t halves[2] = {((vec_of_8)value)[0], ((vec_of_8)value)[1]};
    memcpy(low, &halves[0], 8);
    memcpy(high, &halves[1], 8);
}

/* Store past the caches; `to` is a multiple of 16.  vec_stream_end comes after the
 * last one of a copy: copy_nest.c sees to that. */
VEC_INLINE void
vec_stream(char *to, vec value)
{
#if defined(__SSE2__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)value);
#else
    vec_store(to, value);
#endif
}

VEC_INLINE void
vec_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Take as long as a few dozen instructions and do nothing. */
VEC_INLINE void
vec_pause(void)
{
    __asm__ volatile(".rept 32\n\tnop\n\t.endr");
}

/* Copy past the caches: the whole lines of `to`; what it has before and after them,
 * as usual. */
VEC_INLINE void
vec_stream_run(char *to, const char *from, int64_t run)
{
    int64_t head = (int64_t)(-(uintptr_t)to % VEC_LINE_NBYTES);
    head = head < run ? head : run;
    int64_t end = run - (run - head) % VEC_LINE_NBYTES;
    if (head > 0) {
        memcpy(to, from, (size_t)head);
    }
    for (int64_t at = head; at < end; at += VEC_LINE_NBYTES) {
        VEC_UNROLL for (int64_t k = 0; k < VEC_LINE_NBYTES; k += VEC_NBYTES)
        {
            vec_stream(to + at + k, vec_load(from + at + k));
        }
    }
    if (end < run) {
        memcpy(to + end, from + end, (size_t)(run - end));
    }
}

/* zip: a0 b0 a1 b1 ...; `low` from the lower halves, `high` from the upper ones.
 * pick: the elements at even (odd) places of a, then those of b. */
#define VEC_DEFINE_SHUFFLE(name, type, ...) \
    VEC_INLINE vec name(vec a, vec b) \
    { \
        return VEC_SHUFFLE(type, a, b, __VA_ARGS__); \
    }

VEC_DEFINE_SHUFFLE(vec_zip_low_1, vec_of_1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                   23)
VEC_DEFINE_SHUFFLE(vec_zip_low_2, vec_of_2, 0, 8, 1, 9, 2, 10, 3, 11)
VEC_DEFINE_SHUFFLE(vec_zip_low_4, vec_of_4, 0, 4, 1, 5)
VEC_DEFINE_SHUFFLE(vec_zip_low_8, vec_of_8, 0, 2)

VEC_DEFINE_SHUFFLE(vec_zip_high_1, vec_of_1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                   30, 15, 31)
VEC_DEFINE_SHUFFLE(vec_zip_high_2, vec_of_2, 4, 12, 5, 13, 6, 14, 7, 15)
VEC_DEFINE_SHUFFLE(vec_zip_high_4, vec_of_4, 2, 6, 3, 7)
VEC_DEFINE_SHUFFLE(vec_zip_high_8, vec_of_8, 1, 3)

VEC_DEFINE_SHUFFLE(vec_pick_even_1, vec_of_1, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,
                   28, 30)
VEC_DEFINE_SHUFFLE(vec_pick_even_2, vec_of_2, 0, 2, 4, 6, 8, 10, 12, 14)
VEC_DEFINE_SHUFFLE(vec_pick_even_4, vec_of_4, 0, 2, 4, 6)
VEC_DEFINE_SHUFFLE(vec_pick_even_8, vec_of_8, 0, 2)

VEC_DEFINE_SHUFFLE(vec_pick_odd_1, vec_of_1, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27,
                   29, 31)
VEC_DEFINE_SHUFFLE(vec_pick_odd_2, vec_of_2, 1, 3, 5, 7, 9, 11, 13, 15)
VEC_DEFINE_SHUFFLE(vec_pick_odd_4, vec_of_4, 1, 3, 5, 7)
VEC_DEFINE_SHUFFLE(vec_pick_odd_8, vec_of_8, 1, 3)

/* The upper half of a, then the lower half of b. */
VEC_DEFINE_SHUFFLE(vec_middle, vec_of_8, 1, 2)

#endif /* MD_COPY_VECTOR_H */
