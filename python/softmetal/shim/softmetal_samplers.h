/* softmetal_samplers.h: samplers, and what a sample is told beside them.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: a sampler is a number: SOFT_SAMPLER.
 *
 * SPEC Metal Shading Language Specification 3.2, 2.10 Samplers, 6.12 Texture Functions.  The numbers are those of MTLSampler.h.
 */
#ifndef SOFTMETAL_SAMPLERS_H
#define SOFTMETAL_SAMPLERS_H

#include "softmetal_vectors.h"

namespace metal {
enum class coord { normalized, pixel };
enum class filter { nearest, linear };
enum class mag_filter { nearest, linear };
enum class min_filter { nearest, linear };
enum class mip_filter { none, nearest, linear };
#define SOFTMETAL_ADDRESSES(name)                                                              \
    enum class name {                                                                          \
        clamp_to_edge = 0,                                                                     \
        repeat = 2,                                                                            \
        mirrored_repeat = 3,                                                                   \
        clamp_to_zero = 4,                                                                     \
        clamp_to_border = 5                                                                    \
    };
SOFTMETAL_ADDRESSES(address)
SOFTMETAL_ADDRESSES(s_address)
SOFTMETAL_ADDRESSES(t_address)
SOFTMETAL_ADDRESSES(r_address)
#undef SOFTMETAL_ADDRESSES
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class compare_func {
    never,
    less,
    equal,
    less_equal,
    greater,
    not_equal,
    greater_equal,
    always
};
enum class reduction { weighted_average, minimum, maximum };

struct max_anisotropy {
    int value;
    SOFTMETAL_INLINE explicit constexpr max_anisotropy(int value) : value(value) {}
};
struct lod_clamp {
    float least, most;
    SOFTMETAL_INLINE explicit constexpr lod_clamp(float least, float most)
        : least(least), most(most) {}
};
struct bias {
    float value;
    SOFTMETAL_INLINE explicit constexpr bias(float value) : value(value) {}
};
struct level {
    float value;
    SOFTMETAL_INLINE explicit constexpr level(float value) : value(value) {}
};
struct min_lod_clamp {
    float value;
    SOFTMETAL_INLINE explicit constexpr min_lod_clamp(float value) : value(value) {}
};
#define SOFTMETAL_GRADIENT(name, N)                                                            \
    struct name {                                                                              \
        vec<float, N> along_x, along_y;                                                        \
        SOFTMETAL_INLINE explicit constexpr name(vec<float, N> x, vec<float, N> y)             \
            : along_x(x), along_y(y) {}                                                        \
    };
SOFTMETAL_GRADIENT(gradient2d, 2)
SOFTMETAL_GRADIENT(gradient3d, 3)
SOFTMETAL_GRADIENT(gradientcube, 3)
#undef SOFTMETAL_GRADIENT
enum class component { x, y, z, w };
} // namespace metal

namespace softmetal {
/* What a constexpr sampler is made of. */
struct sampler_fields {
    soft_u32 min = 0, mag = 0, mip = 0, s = 0, t = 0, r = 0, is_pixel = 0, compare = 0,
             border = 0, anisotropy = 1, least = 0, most = 65535, reduction = 0;
    int bias = 0; /* in parts of 4 */

    constexpr void set(metal::coord by) { is_pixel = soft_u32(by); }
    constexpr void set(metal::filter by) { min = mag = soft_u32(by); }
    constexpr void set(metal::min_filter by) { min = soft_u32(by); }
    constexpr void set(metal::mag_filter by) { mag = soft_u32(by); }
    constexpr void set(metal::mip_filter by) { mip = soft_u32(by); }
    constexpr void set(metal::address by) { s = t = r = soft_u32(by); }
    constexpr void set(metal::s_address by) { s = soft_u32(by); }
    constexpr void set(metal::t_address by) { t = soft_u32(by); }
    constexpr void set(metal::r_address by) { r = soft_u32(by); }
    constexpr void set(metal::border_color by) { border = soft_u32(by); }
    constexpr void set(metal::compare_func by) { compare = soft_u32(by); }
    constexpr void set(metal::reduction by) { reduction = soft_u32(by); }
    constexpr void set(metal::max_anisotropy by) {
        anisotropy = soft_u32(by.value < 1 ? 1 : by.value > 16 ? 16 : by.value);
    }
    constexpr void set(metal::lod_clamp by) {
        least = in_parts(by.least);
        most = in_parts(by.most);
    }
    constexpr void set(metal::bias by) { bias = int(by.value * 4.0f); }

    constexpr soft_u64 packed() const {
        return SOFT_SAMPLER(min, mag, mip, s, t, r, is_pixel, compare, border, anisotropy,
                            least, most) |
               soft_u64(reduction) << SOFT_REDUCTION_SHIFT | soft_u64(bias) << SOFT_BIAS_SHIFT;
    }

  private:
    static constexpr soft_u32 in_parts(float level) {
        return level <= 0.0f ? 0 : level >= 15.9997f ? 65535 : soft_u32(level * 4096.0f);
    }
};
} // namespace softmetal

namespace softmetal {
template <class A> A some();
template <class...> using always_void = void;
} // namespace softmetal

namespace metal {
struct sampler {
    soft_u64 softmetal_bits;
    template <class... A,
              class = softmetal::always_void<
                  decltype(softmetal::sampler_fields().set(softmetal::some<A>()))...>>
    SOFTMETAL_INLINE constexpr sampler(A... given) : softmetal_bits(0) {
        softmetal::sampler_fields fields;
        (fields.set(given), ...);
        softmetal_bits = fields.packed();
    }
};
} // namespace metal

#endif /* SOFTMETAL_SAMPLERS_H */
