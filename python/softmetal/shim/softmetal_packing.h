/* softmetal_packing.h: metal_pack: vectors of floats in the bits of an integer, and back.
 *
 * Owns:    nothing.
 * Calls:   libm for sRGB.
 * Threads: every function is pure.
 *
 * The first component lies in the lowest bits.
 */
#ifndef SOFTMETAL_PACKING_H
#define SOFTMETAL_PACKING_H

#include "softmetal_math.h"

namespace softmetal {
/* A number of 0 to 1, or of -1 to 1, as an integer of so many bits; a NaN is 0. */
SOFTMETAL_INLINE uint to_unorm(float a, uint bits) {
    float largest = float((1u << bits) - 1);
    return uint(metal::rint(metal::saturate(metal::isnan(a) ? 0.0f : a) * largest));
}
SOFTMETAL_INLINE uint to_snorm(float a, uint bits) {
    float largest = float((1u << (bits - 1)) - 1);
    float inside = metal::clamp(metal::isnan(a) ? 0.0f : a, -1.0f, 1.0f);
    return uint(int(metal::rint(inside * largest))) & ((1u << bits) - 1);
}
SOFTMETAL_INLINE float from_unorm(uint a, uint bits) {
    return float(a & ((1u << bits) - 1)) / float((1u << bits) - 1);
}
SOFTMETAL_INLINE float from_snorm(uint a, uint bits) {
    int value = int(a << (32 - bits)) >> (32 - bits);
    return metal::max(float(value) / float((1 << (bits - 1)) - 1), -1.0f);
}
SOFTMETAL_INLINE float to_srgb(float a) {
    return a < 0.0031308f ? 12.92f * a : 1.055f * metal::pow(a, 1.0f / 2.4f) - 0.055f;
}
SOFTMETAL_INLINE float from_srgb(float a) {
    return a <= 0.04045f ? a / 12.92f : metal::pow((a + 0.055f) / 1.055f, 2.4f);
}
/* sRGB's curve bends three components; the fourth is no colour. */
SOFTMETAL_INLINE float4 to_srgb(float4 a) {
    return float4(to_srgb(a.x), to_srgb(a.y), to_srgb(a.z), a.w);
}
SOFTMETAL_INLINE float4 from_srgb(float4 a) {
    return float4(from_srgb(a.x), from_srgb(a.y), from_srgb(a.z), a.w);
}
/* The components of a vector, each of so many bits. */
template <class V, class... Bits>
SOFTMETAL_INLINE uint to_bits(uint (*to)(float, uint), V a, Bits... bits) {
    uint made = 0, at = 0;
    size_t nth = 0;
    ((made |= to(a[nth++], bits) << at, at += bits), ...);
    return made;
}
template <class V, class... Bits>
SOFTMETAL_INLINE V from_bits(float (*from)(uint, uint), uint a, Bits... bits) {
    V made;
    uint at = 0;
    size_t nth = 0;
    ((made[nth++] = from(a >> at, bits), at += bits), ...);
    return made;
}
} // namespace softmetal

namespace metal {
#define SOFTMETAL_PACKING(N, Bits, into, out_of, TO, FROM)                                     \
    SOFTMETAL_INLINE Bits pack_float_to_##into(float##N a) { return Bits(TO); }                \
    SOFTMETAL_INLINE Bits pack_half_to_##into(half##N a) {                                     \
        return pack_float_to_##into(float##N(a));                                              \
    }                                                                                          \
    SOFTMETAL_INLINE float##N unpack_##out_of##_to_float(Bits a) { return FROM; }              \
    SOFTMETAL_INLINE half##N unpack_##out_of##_to_half(Bits a) {                               \
        return half##N(unpack_##out_of##_to_float(a));                                         \
    }
/* The number is unorm or snorm; what follows are the bits of each component. */
#define SOFTMETAL_NUMBERS_OF_BITS(N, Bits, layout, number, ...)                                \
    SOFTMETAL_PACKING(N, Bits, layout, layout,                                                 \
                      softmetal::to_bits(softmetal::to_##number, a, __VA_ARGS__),              \
                      softmetal::from_bits<float##N>(softmetal::from_##number, a,              \
                                                     __VA_ARGS__))
SOFTMETAL_NUMBERS_OF_BITS(4, uint, unorm4x8, unorm, 8, 8, 8, 8)
SOFTMETAL_NUMBERS_OF_BITS(4, uint, snorm4x8, snorm, 8, 8, 8, 8)
SOFTMETAL_NUMBERS_OF_BITS(2, uint, unorm2x16, unorm, 16, 16)
SOFTMETAL_NUMBERS_OF_BITS(2, uint, snorm2x16, snorm, 16, 16)
SOFTMETAL_NUMBERS_OF_BITS(4, uint, unorm10a2, unorm, 10, 10, 10, 2)
SOFTMETAL_NUMBERS_OF_BITS(3, ushort, unorm565, unorm, 5, 6, 5)
SOFTMETAL_PACKING(4, uint, srgb_unorm4x8, unorm4x8_srgb,
                  pack_float_to_unorm4x8(softmetal::to_srgb(a)),
                  softmetal::from_srgb(unpack_unorm4x8_to_float(a)))
#undef SOFTMETAL_NUMBERS_OF_BITS
#undef SOFTMETAL_PACKING
} // namespace metal

#endif /* SOFTMETAL_PACKING_H */
