/* softmetal_types.h: Metal's scalar types, their numbers, and type traits.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a value or a type.
 */
#ifndef SOFTMETAL_TYPES_H
#define SOFTMETAL_TYPES_H

/* Every function of these headers is one instruction or two of the line that calls it: it is
 * always inlined and has no lines of its own.  Where a checked image needs to look away (what
 * the run time keeps is no memory of the kernel's) a function of SOFTMETAL_UNSEEN stays a
 * function. */
#ifdef SOFTMETAL_COUNTS /* counted_code.py tells by the lines which code is the library's */
#define SOFTMETAL_INLINE inline __attribute__((always_inline))
#else
#define SOFTMETAL_INLINE inline __attribute__((always_inline, nodebug))
#endif
#if __has_feature(thread_sanitizer) || defined(SOFTMETAL_COUNTS)
#define SOFTMETAL_IS_CHECKED 1
#define SOFTMETAL_UNSEEN                                                                       \
    __attribute__((noinline, nodebug, no_sanitize("thread", "bounds"))) static inline
#else
#define SOFTMETAL_IS_CHECKED 0
#define SOFTMETAL_UNSEEN SOFTMETAL_INLINE
#endif
#ifdef SOFTMETAL_COUNTS
#define SOFTMETAL_IS_COUNTING 1
#else
#define SOFTMETAL_IS_COUNTING 0
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned long uintptr_t;
typedef long intptr_t;
typedef _Float16 half;
typedef decltype(nullptr) nullptr_t;

static_assert(sizeof(long) == 8 && char(-1) < 0, "Metal's long has 64 bits, its char a sign");

namespace metal {
using ::half, ::int16_t, ::int32_t, ::int64_t, ::int8_t, ::intptr_t, ::nullptr_t, ::ptrdiff_t,
    ::size_t, ::uchar, ::uint, ::uint16_t, ::uint32_t, ::uint64_t, ::uint8_t, ::uintptr_t,
    ::ulong, ::ushort;
} // namespace metal

#include "softmetal_traits.h"

#include "softmetal_bfloat.h"

#include "softmetal_limits.h"

#endif /* SOFTMETAL_TYPES_H */
