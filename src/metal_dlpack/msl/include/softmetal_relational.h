/* softmetal_relational.h: metal_relational: isnan and its kind, all, any, select.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: every function is pure.
 *
 * What a number is, its bits say: the answer is right also where the compiler may assume that
 * there is no NaN.
 */
#ifndef SOFTMETAL_RELATIONAL_H
#define SOFTMETAL_RELATIONAL_H

#include "softmetal_overloads.h"

namespace softmetal {
/* The bits of a float without its sign, and where its exponent is full. */
SOFTMETAL_INLINE constexpr uint magnitude(float a) {
    return __builtin_bit_cast(uint, a) & 0x7fffffff;
}
inline constexpr uint full = 0x7f800000;
inline constexpr uint smallest_normal = 0x00800000;
} // namespace softmetal

namespace metal {
#define SOFTMETAL_IS(name, smallest, of_float)                                                 \
    SOFTMETAL_INLINE constexpr bool name(float a) { return of_float; }                         \
    SOFTMETAL_INLINE constexpr bool name(half a) { return name(float(a)) && (smallest); }      \
    SOFTMETAL_INLINE constexpr bool name(bfloat a) { return name(float(a)); }                  \
    SOFTMETAL_VECTORS(1, name, bool, mixed_floats)
SOFTMETAL_IS(isfinite, true, softmetal::magnitude(a) < softmetal::full)
SOFTMETAL_IS(isinf, true, softmetal::magnitude(a) == softmetal::full)
SOFTMETAL_IS(isnan, true, softmetal::magnitude(a) > softmetal::full)
SOFTMETAL_IS(isnormal, softmetal::magnitude(float(a)) >= softmetal::magnitude(0x1p-14f),
             softmetal::magnitude(a) - softmetal::smallest_normal <
                 softmetal::full - softmetal::smallest_normal)
SOFTMETAL_IS(signbit, true, __builtin_bit_cast(uint, a) >> 31)
#undef SOFTMETAL_IS

#define SOFTMETAL_ARE(name, of_float)                                                          \
    SOFTMETAL_INLINE constexpr bool name(float a, float b) { return of_float; }                \
    SOFTMETAL_INLINE constexpr bool name(half a, half b) { return name(float(a), float(b)); }  \
    SOFTMETAL_INLINE constexpr bool name(bfloat a, bfloat b) {                                 \
        return name(float(a), float(b));                                                       \
    }                                                                                          \
    SOFTMETAL_VECTORS(2, name, bool, mixed_floats)
SOFTMETAL_ARE(isordered, !isnan(a) && !isnan(b))
SOFTMETAL_ARE(isunordered, isnan(a) || isnan(b))
#undef SOFTMETAL_ARE

SOFTMETAL_INLINE constexpr bool all(bool a) { return a; }
SOFTMETAL_INLINE constexpr bool any(bool a) { return a; }
SOFTMETAL_INLINE constexpr bool all(bool2 a) { return a.x & a.y; }
SOFTMETAL_INLINE constexpr bool all(bool3 a) { return a.x & a.y & a.z; }
SOFTMETAL_INLINE constexpr bool all(bool4 a) { return a.x & a.y & a.z & a.w; }
SOFTMETAL_INLINE constexpr bool any(bool2 a) { return a.x | a.y; }
SOFTMETAL_INLINE constexpr bool any(bool3 a) { return a.x | a.y | a.z; }
SOFTMETAL_INLINE constexpr bool any(bool4 a) { return a.x | a.y | a.z | a.w; }

/* b where the condition holds, else a. */
template <class A, class B, class M = softmetal::met<A, B>,
          class = enable_if_t<!softmetal::shape<M>::is_vector>>
SOFTMETAL_INLINE constexpr M select(A a, B b, bool condition) {
    return condition ? M(b) : M(a);
}
#define SOFTMETAL_CHOSEN(c, ...) condition.c ? b.c : a.c
#define SOFTMETAL_SELECT(N)                                                                    \
    template <class A, class B, class M = softmetal::met<A, B>>                                \
    SOFTMETAL_INLINE constexpr enable_if_t<softmetal::shape<M>::count == N, M> select(         \
        A given, B other, vec<bool, N> condition) {                                            \
        const M a = M(given), b = M(other);                                                    \
        return M(SOFTMETAL_EACH_##N(SOFTMETAL_CHOSEN, ));                                      \
    }
SOFTMETAL_SELECT(2)
SOFTMETAL_SELECT(3)
SOFTMETAL_SELECT(4)
#undef SOFTMETAL_SELECT
#undef SOFTMETAL_CHOSEN
} // namespace metal

#endif /* SOFTMETAL_RELATIONAL_H */
