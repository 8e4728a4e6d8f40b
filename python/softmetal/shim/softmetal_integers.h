/* softmetal_integers.h: metal_integer.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: every function is pure.
 *
 * In each expression T is the type of the arguments a, b and d; arithmetic that could overflow
 * is unsigned, or twice as wide.
 */
#ifndef SOFTMETAL_INTEGERS_H
#define SOFTMETAL_INTEGERS_H

#include "softmetal_math.h"

namespace softmetal {
template <class T> inline constexpr uint width = 8 * sizeof(T);
template <class T> using unsigned_of = metal::make_unsigned_t<T>;
template <class T> using limits = metal::numeric_limits<T>;
/* Twice as wide as any integer of Metal. */
typedef __int128 wide;
template <class T> SOFTMETAL_INLINE constexpr T saturate_to(wide a) {
    return a < wide(limits<T>::min())   ? limits<T>::min()
           : a > wide(limits<T>::max()) ? limits<T>::max()
                                        : T(a);
}
template <class T> SOFTMETAL_INLINE constexpr T high_half(T a, T b) {
    if constexpr (sizeof(T) == 8)
        return __is_signed(T) ? T(wide(a) * wide(b) >> 64)
                              : T((unsigned __int128)(a) * (unsigned __int128)(b) >> 64);
    else
        return T(long(a) * long(b) >> width<T>);
}
template <class T> SOFTMETAL_INLINE constexpr T saturated_sum(T a, T b, T d) {
    if constexpr (__is_signed(T) || sizeof(T) < 8)
        return saturate_to<T>(wide(a) * wide(b) + wide(d));
    unsigned __int128 sum = (unsigned __int128)(a)*b + d;
    return sum >> 64 ? T(-1) : T(sum);
}
template <class T> SOFTMETAL_INLINE constexpr T reversed(T a) {
    typedef unsigned_of<T> U;
    if constexpr (sizeof(T) == 1) return T(__builtin_bitreverse8(U(a)));
    if constexpr (sizeof(T) == 2) return T(__builtin_bitreverse16(U(a)));
    if constexpr (sizeof(T) == 4) return T(__builtin_bitreverse32(U(a)));
    if constexpr (sizeof(T) == 8) return T(__builtin_bitreverse64(U(a)));
}
template <class T> SOFTMETAL_INLINE constexpr T leading_zeros(T a) {
    typedef unsigned_of<T> U;
    if (a == T(0)) return T(width<T>);
    return T(__builtin_clzll(U(a)) - int(64 - width<T>));
}
template <class T> SOFTMETAL_INLINE constexpr T rotated(T a, T by) {
    typedef unsigned_of<T> U;
    uint left = uint(by) % width<T>;
    return left ? T(U(U(a) << left) | U(U(a) >> (width<T> - left))) : a;
}
/* `bits` ones from the lowest. */
template <class T> SOFTMETAL_INLINE constexpr T low_mask(uint bits) {
    return bits >= width<T> ? T(-1) : T((1ull << bits) - 1);
}
template <class T> SOFTMETAL_INLINE constexpr T extract(T a, uint offset, uint bits) {
    if (bits == 0) return T(0);
    typedef unsigned_of<T> U;
    uint above = width<T> - bits;
    if constexpr (__is_signed(T)) return T(T(U(U(a) >> offset) << above) >> above);
    return T(U(a) >> offset & low_mask<U>(bits));
}
template <class T> SOFTMETAL_INLINE constexpr T insert(T base, T a, uint offset, uint bits) {
    typedef unsigned_of<T> U;
    if (bits == 0) return base;
    U mask = U(low_mask<U>(bits) << offset);
    return T((U(base) & U(~mask)) | (U(U(a) << offset) & mask));
}
/* The low 24 bits, with the sign that they have. */
template <class T> SOFTMETAL_INLINE constexpr T low24(T a) {
    return __is_signed(T) ? T(int(uint(a) << 8) >> 8) : T(a & T(0xffffff));
}
} // namespace softmetal

namespace metal {
template <class T, class = softmetal::if_integral<T>>
SOFTMETAL_INLINE constexpr softmetal::unsigned_of<T> absdiff(T a, T b) {
    typedef softmetal::unsigned_of<T> U;
    return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}
SOFTMETAL_OVER_VECTORS(2, absdiff, softmetal::unsigned_of<T>, if_integral)

SOFTMETAL_INTEGERS(1, clz, softmetal::leading_zeros(a))
SOFTMETAL_INTEGERS(1, ctz,
                   a == T(0) ? softmetal::width<T> : __builtin_ctzll((unsigned long long)a))
SOFTMETAL_INTEGERS(1, popcount, __builtin_popcountll(softmetal::unsigned_of<T>(a)))
SOFTMETAL_INTEGERS(1, reverse_bits, softmetal::reversed(a))

SOFTMETAL_INTEGERS(2, addsat,
                   softmetal::saturate_to<T>(softmetal::wide(a) + softmetal::wide(b)))
SOFTMETAL_INTEGERS(2, subsat,
                   softmetal::saturate_to<T>(softmetal::wide(a) - softmetal::wide(b)))
SOFTMETAL_INTEGERS(2, hadd, (softmetal::wide(a) + softmetal::wide(b)) >> 1)
SOFTMETAL_INTEGERS(2, rhadd, (softmetal::wide(a) + softmetal::wide(b) + 1) >> 1)
SOFTMETAL_INTEGERS(2, mulhi, softmetal::high_half(a, b))
SOFTMETAL_INTEGERS(2, rotate, softmetal::rotated(a, b))
SOFTMETAL_INTEGERS(2, mul24, uint(softmetal::low24(a)) * uint(softmetal::low24(b)))

SOFTMETAL_INTEGERS(3, madhi,
                   softmetal::unsigned_of<T>(mulhi(a, b)) + softmetal::unsigned_of<T>(d))
SOFTMETAL_INTEGERS(3, mad24, uint(mul24(a, b)) + uint(d))
SOFTMETAL_INTEGERS(3, madsat, softmetal::saturated_sum(a, b, d))

#define SOFTMETAL_EXTRACTED(c, offset, bits) extract_bits(a.c, offset, bits)
#define SOFTMETAL_INSERTED(c, offset, bits) insert_bits(a.c, b.c, offset, bits)
template <class T, class = softmetal::if_integral<T>>
SOFTMETAL_INLINE constexpr T extract_bits(T a, uint offset, uint bits) {
    return softmetal::extract(a, offset, bits);
}
template <class T, class = softmetal::if_integral<T>>
SOFTMETAL_INLINE constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
    return softmetal::insert(base, insert, offset, bits);
}
#define SOFTMETAL_BITS(N)                                                                      \
    template <class T>                                                                         \
    SOFTMETAL_INLINE constexpr vec<T, N> extract_bits(vec<T, N> a, uint offset, uint bits) {   \
        return vec<T, N>(SOFTMETAL_EACH_##N(SOFTMETAL_EXTRACTED, offset, bits));               \
    }                                                                                          \
    template <class T>                                                                         \
    SOFTMETAL_INLINE constexpr vec<T, N> insert_bits(vec<T, N> a, vec<T, N> b, uint offset,    \
                                                     uint bits) {                              \
        return vec<T, N>(SOFTMETAL_EACH_##N(SOFTMETAL_INSERTED, offset, bits));                \
    }
SOFTMETAL_BITS(2)
SOFTMETAL_BITS(3)
SOFTMETAL_BITS(4)
#undef SOFTMETAL_BITS
#undef SOFTMETAL_EXTRACTED
#undef SOFTMETAL_INSERTED
} // namespace metal

#endif /* SOFTMETAL_INTEGERS_H */
