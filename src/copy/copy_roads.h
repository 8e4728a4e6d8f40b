/* copy_roads.h: the roads of a copy, its innermost loops: two axes of runs at a time; and what they
 * are made of: one run of bytes, and the elements that compilers make vectors of.
 *
 * Owns:    nothing.
 * Threads: pure functions over the caller's memory.
 * Overlap: none is allowed here; copy.c sees to that.
 */
#ifndef MD_COPY_ROADS_H
#define MD_COPY_ROADS_H

#include <stdint.h>
#include <string.h>

#include "copy/copy_plan.h"

typedef struct copy_block {
    int64_t run;     /* bytes */
    copy_axis outer; /* extent 1 where the copy has fewer axes */
    copy_axis inner;
} copy_block;

/* Copy block->outer.extent x block->inner.extent runs from `src` to `dst`. */
typedef void (*copy_road)(const copy_block *block, char *dst, const char *src);

/* Each returns its road for a block of this form, or NULL.  copy_nest.c asks in this order. */
copy_road copy_fill_road(const copy_block *block);   /* one run over each row of dst */
copy_road copy_planes_road(const copy_block *block); /* 2 to 4 channels to planes, or back */
copy_road copy_tiles_road(const copy_block *block);  /* outer dense in src, inner in dst */
copy_road copy_runs_road(const copy_block *block);   /* any block; never NULL */

/* ---- runs and elements ---- */

/* Elements at any address, in memory of any type. */
typedef uint8_t copy_element_1 __attribute__((may_alias));
typedef uint16_t copy_element_2 __attribute__((may_alias, aligned(1)));
typedef uint32_t copy_element_4 __attribute__((may_alias, aligned(1)));
typedef uint64_t copy_element_8 __attribute__((may_alias, aligned(1)));
typedef uint64_t copy_element_16 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef struct __attribute__((may_alias)) {
    copy_element_16 halves[2];
} copy_element_32;

#define COPY_ELEMENT(size, to, from) \
    (*(copy_element_##size *)(to) = *(const copy_element_##size *)(from))

/* A run of one to two elements, as its first and its last one, which may overlap. */
#define COPY_ENDS(size, to, from, run) \
    do { \
        COPY_ELEMENT(size, to, from); \
        COPY_ELEMENT(size, (to) + (run) - (size), (from) + (run) - (size)); \
    } while (0)

#define COPY_INLINE static inline __attribute__((always_inline))

/* GCC unrolls such loops only when told to; clang does it by itself. */
#if defined(__clang__)
#define COPY_UNROLL(times)
#else
#define COPY_UNROLL(times) COPY_PRAGMA(GCC unroll times)
#define COPY_PRAGMA(text) _Pragma(#text)
#endif

/* 64 bytes, all loaded before any is stored: compilers would make a call of memcpy of less. */
COPY_INLINE void
copy_line(char *to, const char *from)
{
    const copy_element_16 *in = (const copy_element_16 *)from;
    const copy_element_16 a = in[0], b = in[1], c = in[2], d = in[3];
    copy_element_16 *out = (copy_element_16 *)to;
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Copy `run` bytes; `to` and `from` do not overlap.  This is for rows, which may begin anywhere:
 * there, memcpy can take three times as long as the loop. */
COPY_INLINE void
copy_run(char *restrict to, const char *restrict from, int64_t run)
{
    if (run >= 64) {
        /* mutant survives (bound): the last line is copied twice */
        for (int64_t at = 0; at < run - 64; at += 64) {
            copy_line(to + at, from + at);
        }
        copy_line(to + run - 64, from + run - 64);
    }
    else if (run >= 32) {
        COPY_ENDS(32, to, from, run);
    }
    else if (run >= 16) {
        COPY_ENDS(16, to, from, run);
    }
    else if (run >= 8) {
        COPY_ENDS(8, to, from, run);
    }
    else if (run >= 4) {
        COPY_ENDS(4, to, from, run);
    }
    else if (run >= 2) {
        COPY_ENDS(2, to, from, run);
    }
    else {
        *to = *from;
    }
}

#endif /* MD_COPY_ROADS_H */
