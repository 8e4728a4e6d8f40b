/* softmetal_math.h: metal_relational, metal_math with fast:: and precise::, which are one here, and
 * metal_common.
 *
 * Owns:    nothing.
 * Calls:   libm, through the compiler's builtins.
 * Threads: every function is pure.
 */
#ifndef SOFTMETAL_MATH_H
#define SOFTMETAL_MATH_H

#include "softmetal_overloads.h"

/* ---- metal_relational: isnan and its kind, all, any, select ---- */

/* What a number is, its bits say: the answer is right also where the compiler may assume that
 * there is no NaN. */
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

/* ---- metal_math ---- */

namespace softmetal {
/* sin(pi a) and cos(pi a), exact at each quarter of a turn: a is reduced before pi comes. */
SOFTMETAL_INLINE double half_turn(float a) {
    return double(a) - 2 * __builtin_rint(double(a) / 2);
}
SOFTMETAL_INLINE double sine_of_turn(double r) {
    return __builtin_sin(3.14159265358979323846 * r);
}
SOFTMETAL_INLINE double sine_pi(float a) {
    double r = half_turn(a);
    return sine_of_turn(__builtin_fabs(r) > 0.5 ? __builtin_copysign(1.0, r) - r : r);
}
SOFTMETAL_INLINE double cosine_pi(float a) {
    return sine_of_turn(0.5 - __builtin_fabs(half_turn(a)));
}

/* The next value of 16 or 32 bits towards another. */
template <class T, class Bits> SOFTMETAL_INLINE T next(T from, T to) {
    constexpr Bits sign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
    if (metal::isunordered(from, to)) return T(__builtin_nanf(""));
    if (from == to) return to;
    Bits bits = __builtin_bit_cast(Bits, from);
    if (from == T(0))
        bits = Bits((to < T(0) ? sign : 0) | 1);
    else
        bits = Bits(bits + ((from < to) == !(bits & sign) ? 1 : -1));
    return __builtin_bit_cast(T, bits);
}
template <class T> SOFTMETAL_INLINE T below_one(T fraction, T largest) {
    return fraction >= T(1) ? largest : fraction;
}
} // namespace softmetal

namespace metal {
SOFTMETAL_FLOATS(1, acos, __builtin_acosf(a))
SOFTMETAL_FLOATS(1, acosh, __builtin_acoshf(a))
SOFTMETAL_FLOATS(1, asin, __builtin_asinf(a))
SOFTMETAL_FLOATS(1, asinh, __builtin_asinhf(a))
SOFTMETAL_FLOATS(1, atan, __builtin_atanf(a))
SOFTMETAL_FLOATS(1, atanh, __builtin_atanhf(a))
SOFTMETAL_FLOATS(1, ceil, __builtin_ceilf(a))
SOFTMETAL_FLOATS(1, cos, __builtin_cosf(a))
SOFTMETAL_FLOATS(1, cosh, __builtin_coshf(a))
SOFTMETAL_FLOATS(1, cospi, float(softmetal::cosine_pi(a)))
SOFTMETAL_FLOATS(1, exp, __builtin_expf(a))
SOFTMETAL_FLOATS(1, exp2, __builtin_exp2f(a))
SOFTMETAL_FLOATS(1, exp10, float(__builtin_exp2(3.32192809488736234787 * double(a))))
SOFTMETAL_FLOATS(1, fabs, __builtin_fabsf(a))
SOFTMETAL_FLOATS(1, floor, __builtin_floorf(a))
SOFTMETAL_FLOATS(1, log, __builtin_logf(a))
SOFTMETAL_FLOATS(1, log2, __builtin_log2f(a))
SOFTMETAL_FLOATS(1, log10, __builtin_log10f(a))
SOFTMETAL_FLOATS(1, rint, __builtin_rintf(a))
SOFTMETAL_FLOATS(1, round, __builtin_roundf(a))
SOFTMETAL_FLOATS(1, rsqrt, 1.0f / __builtin_sqrtf(a))
SOFTMETAL_FLOATS(1, sin, __builtin_sinf(a))
SOFTMETAL_FLOATS(1, sinh, __builtin_sinhf(a))
SOFTMETAL_FLOATS(1, sinpi, float(softmetal::sine_pi(a)))
SOFTMETAL_FLOATS(1, sqrt, __builtin_sqrtf(a))
SOFTMETAL_FLOATS(1, tan, __builtin_tanf(a))
SOFTMETAL_FLOATS(1, tanh, __builtin_tanhf(a))
SOFTMETAL_FLOATS(1, tanpi, float(softmetal::sine_pi(a) / softmetal::cosine_pi(a)))
SOFTMETAL_FLOATS(1, trunc, __builtin_truncf(a))

SOFTMETAL_FLOATS(2, atan2, __builtin_atan2f(a, b))
SOFTMETAL_FLOATS(2, copysign, __builtin_copysignf(a, b))
SOFTMETAL_FLOATS(2, divide, a / b)
SOFTMETAL_FLOATS(2, fdim, __builtin_fdimf(a, b))
SOFTMETAL_FLOATS(2, fmax, __builtin_fmaxf(a, b))
SOFTMETAL_FLOATS(2, fmin, __builtin_fminf(a, b))
SOFTMETAL_FLOATS(2, fmod, __builtin_fmodf(a, b))
SOFTMETAL_FLOATS(2, pow, __builtin_powf(a, b))
SOFTMETAL_FLOATS(2, powr, a < 0 ? __builtin_nanf("") : __builtin_powf(a, b))

SOFTMETAL_FLOATS(3, fma, __builtin_fmaf(a, b, d))
SOFTMETAL_FLOATS(3, fmax3, fmax(fmax(a, b), d))
SOFTMETAL_FLOATS(3, fmin3, fmin(fmin(a, b), d))
SOFTMETAL_FLOATS(3, fmedian3, fmax(fmin(a, b), fmin(fmax(a, b), d)))

SOFTMETAL_INLINE float fract(float a) {
    return softmetal::below_one(a - __builtin_floorf(a), 0x1.fffffep-1f);
}
SOFTMETAL_INLINE half fract(half a) {
    return softmetal::below_one(a - floor(a), half(0x1.ffcp-1f));
}
SOFTMETAL_INLINE bfloat fract(bfloat a) {
    return softmetal::below_one(a - floor(a), bfloat(0x1.fep-1f));
}
SOFTMETAL_VECTORS(1, fract, T, mixed_floats)
SOFTMETAL_ACCURACIES(metal::fract)

SOFTMETAL_INLINE float nextafter(float a, float b) {
    return softmetal::next<float, uint>(a, b);
}
SOFTMETAL_INLINE half nextafter(half a, half b) { return softmetal::next<half, ushort>(a, b); }
SOFTMETAL_INLINE bfloat nextafter(bfloat a, bfloat b) {
    return softmetal::next<bfloat, ushort>(a, b);
}
SOFTMETAL_VECTORS(2, nextafter, T, mixed_floats)
SOFTMETAL_ACCURACIES(metal::nextafter)

/* Functions with an integer beside, or a second result. */
template <class T, class = softmetal::if_floating<T>> SOFTMETAL_INLINE int ilogb(T a) {
    return a == T(0) || isnan(a) ? FP_ILOGBNAN
           : isinf(a)            ? INT_MAX
                                 : __builtin_ilogbf(float(a));
}
SOFTMETAL_OVER_VECTORS(1, ilogb, int, if_floating)
SOFTMETAL_ACCURACIES(metal::ilogb)

template <class T, class = softmetal::if_floating<T>>
SOFTMETAL_INLINE constexpr T ldexp(T a, int exponent) {
    return T(__builtin_ldexpf(float(a), exponent));
}
template <class T, class = softmetal::if_floating<T>>
SOFTMETAL_INLINE constexpr T frexp(T a, int &exponent) {
    exponent = 0;
    return T(__builtin_frexpf(float(a), &exponent));
}
template <class T, class = softmetal::if_floating<T>>
SOFTMETAL_INLINE constexpr T modf(T a, T &whole) {
    whole = trunc(a);
    return copysign(isinf(a) ? T(0) : T(a - whole), a);
}
template <class T, class = softmetal::if_floating<T>>
SOFTMETAL_INLINE T sincos(T a, T &cosine) {
    cosine = cos(a);
    return sin(a);
}
/* For vectors; `Other` is the type of the second. */
#define SOFTMETAL_BESIDE(c, name) name(a.c, other.c)
#define SOFTMETAL_TWO(N, name, ...)                                                            \
    template <class T>                                                                         \
    SOFTMETAL_INLINE constexpr vec<T, N> name(vec<T, N> a, __VA_ARGS__ other) {                \
        return vec<T, N>(SOFTMETAL_EACH_##N(SOFTMETAL_BESIDE, name));                          \
    }
#define SOFTMETAL_TWO_EACH(N)                                                                  \
    SOFTMETAL_TWO(N, ldexp, int##N)                                                            \
    SOFTMETAL_TWO(N, frexp, int##N &)                                                          \
    SOFTMETAL_TWO(N, modf, vec<T, N> &)                                                        \
    SOFTMETAL_TWO(N, sincos, vec<T, N> &)
SOFTMETAL_TWO_EACH(2)
SOFTMETAL_TWO_EACH(3)
SOFTMETAL_TWO_EACH(4)
#undef SOFTMETAL_TWO_EACH
#undef SOFTMETAL_TWO
#undef SOFTMETAL_BESIDE
SOFTMETAL_ACCURACIES(metal::ldexp, metal::frexp, metal::modf, metal::sincos)

/* For floats and integers. */
SOFTMETAL_NUMBERS(1, abs, __builtin_fabsf(a), a < T(0) ? T(-a) : a)
SOFTMETAL_NUMBERS(2, max, fmax(a, b), a < b ? b : a)
SOFTMETAL_NUMBERS(2, min, fmin(a, b), b < a ? b : a)
SOFTMETAL_NUMBERS(3, max3, fmax3(a, b, d), max(max(a, b), d))
SOFTMETAL_NUMBERS(3, min3, fmin3(a, b, d), min(min(a, b), d))
SOFTMETAL_NUMBERS(3, median3, fmedian3(a, b, d), max(min(a, b), min(max(a, b), d)))
SOFTMETAL_NUMBERS(3, clamp, fmin(fmax(a, b), d), min(max(a, b), d))
} // namespace metal

/* ---- metal_common: mix, saturate, sign, smoothstep, step ---- */

namespace softmetal {
SOFTMETAL_INLINE constexpr float smooth(float t) { return t * t * (3 - 2 * t); }
} // namespace softmetal

namespace metal {
SOFTMETAL_FLOATS(1, saturate, fmin(fmax(a, 0.0f), 1.0f))
SOFTMETAL_FLOATS(1, sign, a > 0 ? 1.0f : a < 0 ? -1.0f : isnan(a) ? 0.0f : a)
SOFTMETAL_FLOATS(2, step, b < a ? 0.0f : 1.0f)
SOFTMETAL_FLOATS(3, mix, a + (b - a) * d)
SOFTMETAL_FLOATS(3, smoothstep, softmetal::smooth(saturate((d - a) / (b - a))))
} // namespace metal

#endif /* SOFTMETAL_MATH_H */
