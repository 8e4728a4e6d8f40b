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

#include "softmetal_interpolation.h"

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
} // namespace softmetal

namespace metal {
SOFTMETAL_INLINE uint pack_float_to_unorm4x8(float4 a) {
    using softmetal::to_unorm;
    return to_unorm(a.x, 8) | to_unorm(a.y, 8) << 8 | to_unorm(a.z, 8) << 16 |
           to_unorm(a.w, 8) << 24;
}
SOFTMETAL_INLINE uint pack_float_to_snorm4x8(float4 a) {
    using softmetal::to_snorm;
    return to_snorm(a.x, 8) | to_snorm(a.y, 8) << 8 | to_snorm(a.z, 8) << 16 |
           to_snorm(a.w, 8) << 24;
}
SOFTMETAL_INLINE uint pack_float_to_srgb_unorm4x8(float4 a) {
    return pack_float_to_unorm4x8(
        float4(softmetal::to_srgb(a.x), softmetal::to_srgb(a.y), softmetal::to_srgb(a.z), a.w));
}
SOFTMETAL_INLINE uint pack_float_to_unorm2x16(float2 a) {
    return softmetal::to_unorm(a.x, 16) | softmetal::to_unorm(a.y, 16) << 16;
}
SOFTMETAL_INLINE uint pack_float_to_snorm2x16(float2 a) {
    return softmetal::to_snorm(a.x, 16) | softmetal::to_snorm(a.y, 16) << 16;
}
SOFTMETAL_INLINE uint pack_float_to_unorm10a2(float4 a) {
    using softmetal::to_unorm;
    return to_unorm(a.x, 10) | to_unorm(a.y, 10) << 10 | to_unorm(a.z, 10) << 20 |
           to_unorm(a.w, 2) << 30;
}
SOFTMETAL_INLINE ushort pack_float_to_unorm565(float3 a) {
    using softmetal::to_unorm;
    return ushort(to_unorm(a.x, 5) | to_unorm(a.y, 6) << 5 | to_unorm(a.z, 5) << 11);
}

SOFTMETAL_INLINE float4 unpack_unorm4x8_to_float(uint a) {
    using softmetal::from_unorm;
    return float4(from_unorm(a, 8), from_unorm(a >> 8, 8), from_unorm(a >> 16, 8),
                  from_unorm(a >> 24, 8));
}
SOFTMETAL_INLINE float4 unpack_snorm4x8_to_float(uint a) {
    using softmetal::from_snorm;
    return float4(from_snorm(a, 8), from_snorm(a >> 8, 8), from_snorm(a >> 16, 8),
                  from_snorm(a >> 24, 8));
}
SOFTMETAL_INLINE float4 unpack_unorm4x8_srgb_to_float(uint a) {
    float4 encoded = unpack_unorm4x8_to_float(a);
    return float4(softmetal::from_srgb(encoded.x), softmetal::from_srgb(encoded.y),
                  softmetal::from_srgb(encoded.z), encoded.w);
}
SOFTMETAL_INLINE float2 unpack_unorm2x16_to_float(uint a) {
    return float2(softmetal::from_unorm(a, 16), softmetal::from_unorm(a >> 16, 16));
}
SOFTMETAL_INLINE float2 unpack_snorm2x16_to_float(uint a) {
    return float2(softmetal::from_snorm(a, 16), softmetal::from_snorm(a >> 16, 16));
}
SOFTMETAL_INLINE float4 unpack_unorm10a2_to_float(uint a) {
    using softmetal::from_unorm;
    return float4(from_unorm(a, 10), from_unorm(a >> 10, 10), from_unorm(a >> 20, 10),
                  from_unorm(a >> 30, 2));
}
SOFTMETAL_INLINE float3 unpack_unorm565_to_float(ushort a) {
    using softmetal::from_unorm;
    return float3(from_unorm(a, 5), from_unorm(uint(a) >> 5, 6), from_unorm(uint(a) >> 11, 5));
}

/* The same of halves. */
#define SOFTMETAL_OF_HALVES(into, out_of, Packed, N)                                           \
    SOFTMETAL_INLINE Packed pack_half_to_##into(half##N a) {                                   \
        return pack_float_to_##into(float##N(a));                                              \
    }                                                                                          \
    SOFTMETAL_INLINE half##N unpack_##out_of##_to_half(Packed a) {                             \
        return half##N(unpack_##out_of##_to_float(a));                                         \
    }
SOFTMETAL_OF_HALVES(unorm4x8, unorm4x8, uint, 4)
SOFTMETAL_OF_HALVES(snorm4x8, snorm4x8, uint, 4)
SOFTMETAL_OF_HALVES(srgb_unorm4x8, unorm4x8_srgb, uint, 4)
SOFTMETAL_OF_HALVES(unorm2x16, unorm2x16, uint, 2)
SOFTMETAL_OF_HALVES(snorm2x16, snorm2x16, uint, 2)
SOFTMETAL_OF_HALVES(unorm10a2, unorm10a2, uint, 4)
SOFTMETAL_OF_HALVES(unorm565, unorm565, ushort, 3)
#undef SOFTMETAL_OF_HALVES
} // namespace metal

#endif /* SOFTMETAL_PACKING_H */
