/* softmetal_texture_access.h: a texture's handle, and what its functions ask of the run time.
 *
 * Owns:    nothing.
 * Calls:   the run time, through softmetal_image.runtime; a checked image tells it of each pixel before it is touched.
 * Threads: each function speaks for the kernel's thread that calls it.
 */
#ifndef SOFTMETAL_TEXTURE_ACCESS_H
#define SOFTMETAL_TEXTURE_ACCESS_H

#include "softmetal_atomics.h"
#include "softmetal_runtime.h"
#include "softmetal_samplers.h"

#if SOFTMETAL_IS_CHECKED && !SOFTMETAL_IS_COUNTING
#define SOFTMETAL_LOOKS_AT_PIXELS 1
/* softmetal_checked.cpp: the accesses are those of the line that asks. */
extern "C" {
void __tsan_read_range(void *address, size_t nbytes);
void __tsan_write_range(void *address, size_t nbytes);
}
#else
#define SOFTMETAL_LOOKS_AT_PIXELS 0
#endif

namespace softmetal {
/* ---- four channels as a vector of a texture's type ---- */

template <class T> SOFTMETAL_INLINE T channel(soft_u32 bits) {
    if constexpr (__is_same(T, float) || __is_same(T, half))
        return T(__builtin_bit_cast(float, bits));
    else
        return T(bits);
}
template <class T> SOFTMETAL_INLINE soft_u32 channel_bits(T value) {
    if constexpr (__is_same(T, float) || __is_same(T, half))
        return __builtin_bit_cast(soft_u32, float(value));
    else
        return soft_u32(value);
}
template <class T> SOFTMETAL_INLINE vec<T, 4> color_of(soft_pixel p) {
    if constexpr (sizeof(T) == 8)
        return vec<T, 4>(T(p[0] | soft_u64(p[1]) << 32), T(0), T(0), T(0));
    else
        return vec<T, 4>(channel<T>(p[0]), channel<T>(p[1]), channel<T>(p[2]),
                         channel<T>(p[3]));
}
template <class T> SOFTMETAL_INLINE soft_pixel pixel_of(vec<T, 4> color) {
    if constexpr (sizeof(T) == 8)
        return soft_pixel{soft_u32(color.x), soft_u32(soft_u64(color.x) >> 32), 0, 0};
    else
        return soft_pixel{channel_bits(color.x), channel_bits(color.y), channel_bits(color.z),
                          channel_bits(color.w)};
}
/* A texture of depths gives one number. */
template <class T, bool is_depth> SOFTMETAL_INLINE auto given(soft_pixel pixel) {
    if constexpr (is_depth)
        return channel<T>(pixel[0]);
    else
        return color_of<T>(pixel);
}

/* ---- what is asked of the run time; SOFTMETAL_UNSEEN, as its own memory is none of the kernel's ---- */

struct pixel_place {
    void *address;
    soft_u32 nbytes; /* 0: nothing is touched */
};
SOFTMETAL_UNSEEN soft_pixel ask_read(const soft_texture *of, uint x, uint y, uint z,
                                     uint level) {
    return softmetal_image.runtime->texture_read(of, x, y, z, level);
}
SOFTMETAL_UNSEEN void ask_write(const soft_texture *of, soft_pixel pixel, uint x, uint y,
                                uint z, uint level) {
    softmetal_image.runtime->texture_write(of, pixel, x, y, z, level);
}
SOFTMETAL_UNSEEN void *ask_place(const soft_texture *of, uint x, uint y, uint z, uint nbytes) {
    return softmetal_image.runtime->texture_place(of, x, y, z, nbytes);
}
SOFTMETAL_UNSEEN soft_pixel ask_sample(const soft_texture *of, soft_u64 by, soft_floats at,
                                       soft_floats level, uint slice, uint how) {
    return softmetal_image.runtime->texture_sample(of, by, at, level, slice, how);
}
SOFTMETAL_UNSEEN float ask_level(const soft_texture *of, soft_floats at, soft_floats along_x,
                                 soft_floats along_y) {
    return softmetal_image.runtime->texture_level(of, at, along_x, along_y);
}

#if SOFTMETAL_LOOKS_AT_PIXELS
SOFTMETAL_UNSEEN pixel_place look(const soft_texture *of, uint x, uint y, uint z, uint level,
                                  soft_u32 how, const void *site) {
    pixel_place found;
    found.nbytes =
        softmetal_image.runtime->texture_look(of, x, y, z, level, how, site, &found.address);
    return found;
}
struct pixel_places {
    void *all[SOFT_MOST_TEXELS];
    soft_u32 count, nbytes;
};
SOFTMETAL_UNSEEN void look_around(const soft_texture *of, soft_u64 by, soft_floats at,
                                  soft_floats level, uint slice, uint how, const void *site,
                                  pixel_places *found) {
    found->nbytes =
        softmetal_image.runtime->texture_look_around(of, by, at, level, slice, how, site,
                                                     found->all, &found->count);
}
SOFTMETAL_UNSEEN pixel_place place_at(const pixel_places *found, soft_u32 i) {
    return {i < found->count ? found->all[i] : nullptr, found->nbytes};
}
SOFTMETAL_UNSEEN void ask_fence(const soft_texture *of) {
    softmetal_image.runtime->texture_fence(of);
}
#endif

/* A checked image goes no further with a handle that no texture of the launch has. */
SOFTMETAL_INLINE const soft_texture *known(const soft_texture *of) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    look(of, 0, 0, 0, 0, SOFT_ACCESS_FENCE, this_site());
#endif
    return of;
}

/* ---- one pixel, one sample ---- */

SOFTMETAL_INLINE soft_pixel read_pixel(const soft_texture *of, uint x, uint y, uint z,
                                       uint level) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    pixel_place found = look(of, x, y, z, level, 0, this_site());
    if (found.nbytes) __tsan_read_range(found.address, found.nbytes);
#endif
    return ask_read(of, x, y, z, level);
}
SOFTMETAL_INLINE void write_pixel(const soft_texture *of, soft_pixel pixel, uint x, uint y,
                                  uint z, uint level) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    pixel_place found = look(of, x, y, z, level, SOFT_ACCESS_WRITE, this_site());
    if (found.nbytes) __tsan_write_range(found.address, found.nbytes);
#endif
    ask_write(of, pixel, x, y, z, level);
}
SOFTMETAL_INLINE soft_pixel sample_pixels(const soft_texture *of, soft_u64 by, soft_floats at,
                                          soft_floats level, uint slice, uint how) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    pixel_places found;
    look_around(of, by, at, level, slice, how, this_site(), &found);
    for (soft_u32 i = 0;; i++) {
        pixel_place one = place_at(&found, i);
        if (one.address == nullptr) break;
        __tsan_read_range(one.address, one.nbytes);
    }
#endif
    return ask_sample(of, by, at, level, slice, how);
}
/* NULL: it lies outside, and nothing is done.  The atomic operation itself is what a checked image tells. */
template <class T> SOFTMETAL_INLINE metal::_atomic<T> *atomic_pixel(const soft_texture *of,
                                                                    uint x, uint y, uint z) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    look(of, x, y, z, 0, SOFT_ACCESS_WRITE | SOFT_ACCESS_ATOMIC, this_site());
#endif
    return static_cast<metal::_atomic<T> *>(ask_place(of, x, y, z, sizeof(T)));
}
SOFTMETAL_INLINE void fence_texture(const soft_texture *of) {
#if SOFTMETAL_LOOKS_AT_PIXELS
    ask_fence(of);
#endif
}

/* ---- what the launch knows of a texture ---- */

SOFTMETAL_INLINE uint halved(uint side, uint level) {
    return level >= 32 || side >> level == 0 ? 1 : side >> level;
}
SOFTMETAL_UNSEEN uint width_of(const soft_texture *of, uint level) {
    return of == nullptr ? 0 : halved(of->width, level);
}
SOFTMETAL_UNSEEN uint height_of(const soft_texture *of, uint level) {
    return of == nullptr ? 0 : halved(of->height, level);
}
SOFTMETAL_UNSEEN uint depth_of(const soft_texture *of, uint level) {
    return of == nullptr ? 0 : halved(of->depth, level);
}
SOFTMETAL_UNSEEN uint slices_of(const soft_texture *of) {
    return of == nullptr ? 0 : of->slices;
}
SOFTMETAL_UNSEEN uint levels_of(const soft_texture *of) {
    return of == nullptr ? 0 : of->levels;
}

/* ---- the level that a sample is of ---- */

inline constexpr soft_floats first_level = {0.0f, -3.0e38f, 0.0f, 0.0f};
/* One of the options that a sample takes; `Gradient` is the one of its texture. */
template <class Gradient> struct chosen_level {
    Gradient gradient{0.0f, 0.0f};
    bool has_gradient = false;
    float level = 0.0f, least = -3.0e38f;
    SOFTMETAL_INLINE chosen_level() {}
    SOFTMETAL_INLINE chosen_level(metal::level by) : level(by.value) {}
    SOFTMETAL_INLINE chosen_level(metal::bias by) : level(by.value) {}
    SOFTMETAL_INLINE chosen_level(metal::min_lod_clamp by) : least(by.value) {}
    SOFTMETAL_INLINE chosen_level(Gradient by) : gradient(by), has_gradient(true) {}
    SOFTMETAL_INLINE soft_floats of(const soft_texture *texture, soft_floats at) const {
        float chosen = level;
        if (has_gradient)
            chosen = ask_level(known(texture), at, floats(gradient.along_x),
                               floats(gradient.along_y));
        return soft_floats{chosen, least, 0.0f, 0.0f};
    }

  private:
    SOFTMETAL_INLINE static soft_floats floats(vec<float, 2> v) {
        return soft_floats{v.x, v.y, 0.0f, 0.0f};
    }
    SOFTMETAL_INLINE static soft_floats floats(vec<float, 3> v) {
        return soft_floats{v.x, v.y, v.z, 0.0f};
    }
};
/* An option that goes with a least level. */
template <class Gradient> struct bounded_level : chosen_level<Gradient> {
    SOFTMETAL_INLINE bounded_level(metal::bias by) : chosen_level<Gradient>(by) {}
    SOFTMETAL_INLINE bounded_level(Gradient by) : chosen_level<Gradient>(by) {}
    SOFTMETAL_INLINE const bounded_level &not_below(metal::min_lod_clamp by) {
        this->least = by.value;
        return *this;
    }
};
} // namespace softmetal

#endif /* SOFTMETAL_TEXTURE_ACCESS_H */
