/* softmetal_textures.h: Metal's texture types: texture2d<float, access::read>, depthcube_array<float>, ...
 *
 * Owns:    nothing; a texture is a handle of 8 bytes, the address of the launch's soft_texture.
 * Calls:   softmetal_texture_access.h.
 * Threads: see there.
 *
 * A type is a chain of classes, each with some functions: one that its access does not allow is none of its members.
 * SPEC Metal Shading Language Specification 3.2, 2.9 Textures, 6.12 Texture Functions.
 */
#ifndef SOFTMETAL_TEXTURES_H
#define SOFTMETAL_TEXTURES_H

#include "softmetal_texture_access.h"

namespace metal {
enum class access { sample, read, write, read_write };
enum memory_coherence { memory_coherence_threadgroup, memory_coherence_device };
} // namespace metal

namespace softmetal {
/* A coordinate that is one number: any integer, and no float. */
struct place_in_row {
    uint at;
    template <class I, class = enable_if_t<is_integral_v<I>>>
    SOFTMETAL_INLINE place_in_row(I at) : at(uint(at)) {}
};

/* What each kind of texture has: its MTLTextureType; how a pixel is named, by numbers of type V, and where that is; for
 * which V, as there is but one way to name a pixel of a row. */
#define SOFTMETAL_NAMED_1d(V) place_in_row coord
#define SOFTMETAL_PIXEL_1d coord.at, 0, 0
#define SOFTMETAL_BOTH_1d(M) M(1d, uint)
#define SOFTMETAL_NAMED_buffer(V) SOFTMETAL_NAMED_1d(V)
#define SOFTMETAL_PIXEL_buffer SOFTMETAL_PIXEL_1d
#define SOFTMETAL_BOTH_buffer(M) M(buffer, uint)
#define SOFTMETAL_NAMED_1d_array(V) place_in_row coord, uint array
#define SOFTMETAL_PIXEL_1d_array coord.at, 0, array
#define SOFTMETAL_BOTH_1d_array(M) M(1d_array, uint)
#define SOFTMETAL_NAMED_2d(V) vec<V, 2> coord
#define SOFTMETAL_PIXEL_2d coord.x, coord.y, 0
#define SOFTMETAL_BOTH_2d(M) M(2d, uint) M(2d, ushort)
#define SOFTMETAL_NAMED_2d_array(V) vec<V, 2> coord, uint array
#define SOFTMETAL_PIXEL_2d_array coord.x, coord.y, array
#define SOFTMETAL_BOTH_2d_array(M) M(2d_array, uint) M(2d_array, ushort)
#define SOFTMETAL_NAMED_2d_ms(V) vec<V, 2> coord, uint
#define SOFTMETAL_PIXEL_2d_ms coord.x, coord.y, 0
#define SOFTMETAL_BOTH_2d_ms(M) M(2d_ms, uint) M(2d_ms, ushort)
#define SOFTMETAL_NAMED_2d_ms_array(V) vec<V, 2> coord, uint array, uint
#define SOFTMETAL_PIXEL_2d_ms_array coord.x, coord.y, array
#define SOFTMETAL_BOTH_2d_ms_array(M) M(2d_ms_array, uint) M(2d_ms_array, ushort)
#define SOFTMETAL_NAMED_3d(V) vec<V, 3> coord
#define SOFTMETAL_PIXEL_3d coord.x, coord.y, coord.z
#define SOFTMETAL_BOTH_3d(M) M(3d, uint) M(3d, ushort)
#define SOFTMETAL_NAMED_cube(V) vec<V, 2> coord, uint face
#define SOFTMETAL_PIXEL_cube coord.x, coord.y, face
#define SOFTMETAL_BOTH_cube(M) M(cube, uint) M(cube, ushort)
#define SOFTMETAL_NAMED_cube_array(V) vec<V, 2> coord, uint face, uint array
#define SOFTMETAL_PIXEL_cube_array coord.x, coord.y, face + 6 * array
#define SOFTMETAL_BOTH_cube_array(M) M(cube_array, uint) M(cube_array, ushort)

/* ---- what every texture of a kind has ---- */

template <class T, metal::access A, soft_u32 type, bool is_depth> struct handle {
    const soft_texture *softmetal_texture;
    typedef T softmetal_item;
    static constexpr soft_u32 softmetal_type = type;
    static constexpr bool softmetal_is_depth = is_depth;
    static constexpr bool softmetal_is_written =
        A == metal::access::write || A == metal::access::read_write;
    static constexpr bool softmetal_is_read = A != metal::access::write;
};
#define SOFTMETAL_OF this->softmetal_texture
#define SOFTMETAL_ASKS_FOR(name, value)                                                        \
    SOFTMETAL_INLINE uint name(uint lod = 0) const { return value(known(SOFTMETAL_OF), lod); }
#define SOFTMETAL_COUNTS_OF(name, value)                                                       \
    SOFTMETAL_INLINE uint name() const { return value; }
#define SOFTMETAL_WIDTH SOFTMETAL_ASKS_FOR(get_width, width_of)
#define SOFTMETAL_LEVELS SOFTMETAL_COUNTS_OF(get_num_mip_levels, levels_of(known(SOFTMETAL_OF)))
#define SOFTMETAL_NO_LEVELS SOFTMETAL_COUNTS_OF(get_num_mip_levels, 0)
#define SOFTMETAL_SLICES SOFTMETAL_COUNTS_OF(get_array_size, slices_of(known(SOFTMETAL_OF)))
#define SOFTMETAL_PLANE SOFTMETAL_WIDTH SOFTMETAL_ASKS_FOR(get_height, height_of)
#define SOFTMETAL_SAMPLES_COUNT SOFTMETAL_COUNTS_OF(get_num_samples, 1)
#define SOFTMETAL_SIZES(kind, ...)                                                             \
    template <class Base> struct sizes_##kind : Base {                                         \
        __VA_ARGS__                                                                            \
    };
SOFTMETAL_SIZES(1d, SOFTMETAL_WIDTH SOFTMETAL_NO_LEVELS)
SOFTMETAL_SIZES(buffer, SOFTMETAL_WIDTH)
SOFTMETAL_SIZES(1d_array, SOFTMETAL_WIDTH SOFTMETAL_NO_LEVELS SOFTMETAL_SLICES)
SOFTMETAL_SIZES(2d, SOFTMETAL_PLANE SOFTMETAL_LEVELS)
SOFTMETAL_SIZES(2d_array, SOFTMETAL_PLANE SOFTMETAL_LEVELS SOFTMETAL_SLICES)
SOFTMETAL_SIZES(2d_ms, SOFTMETAL_PLANE SOFTMETAL_SAMPLES_COUNT)
SOFTMETAL_SIZES(2d_ms_array, SOFTMETAL_PLANE SOFTMETAL_SAMPLES_COUNT SOFTMETAL_SLICES)
SOFTMETAL_SIZES(3d, SOFTMETAL_PLANE SOFTMETAL_ASKS_FOR(get_depth, depth_of) SOFTMETAL_LEVELS)
SOFTMETAL_SIZES(cube, SOFTMETAL_PLANE SOFTMETAL_LEVELS)
SOFTMETAL_SIZES(cube_array, SOFTMETAL_PLANE SOFTMETAL_LEVELS SOFTMETAL_COUNTS_OF(
                                get_array_size, slices_of(known(SOFTMETAL_OF)) / 6))

/* ---- pixels ---- */

#define SOFTMETAL_READ(kind, V)                                                                \
    SOFTMETAL_INLINE auto read(SOFTMETAL_NAMED_##kind(V), uint lod = 0) const {                \
        return given<T, is_depth>(read_pixel(SOFTMETAL_OF, SOFTMETAL_PIXEL_##kind, lod));      \
    }
#define SOFTMETAL_WRITE(kind, V)                                                               \
    SOFTMETAL_INLINE void write(vec<T, 4> color, SOFTMETAL_NAMED_##kind(V), uint lod = 0)      \
        const {                                                                                \
        write_pixel(SOFTMETAL_OF, pixel_of<T>(color), SOFTMETAL_PIXEL_##kind, lod);            \
    }
#define SOFTMETAL_PIXELS(kind)                                                                 \
    template <class T, bool is_depth, class Base> struct reads_##kind : Base {                 \
        SOFTMETAL_BOTH_##kind(SOFTMETAL_READ)                                                  \
    };                                                                                         \
    template <class T, class Base> struct writes_##kind : Base {                               \
        SOFTMETAL_BOTH_##kind(SOFTMETAL_WRITE)                                                 \
    };
SOFTMETAL_PIXELS(1d)
SOFTMETAL_PIXELS(buffer)
SOFTMETAL_PIXELS(1d_array)
SOFTMETAL_PIXELS(2d)
SOFTMETAL_PIXELS(2d_array)
SOFTMETAL_PIXELS(2d_ms)
SOFTMETAL_PIXELS(2d_ms_array)
SOFTMETAL_PIXELS(3d)
SOFTMETAL_PIXELS(cube)
SOFTMETAL_PIXELS(cube_array)

/* ---- atomics, of textures that are read and written ---- */

#define SOFTMETAL_RELAXED_ORDER metal::memory_order_relaxed
#define SOFTMETAL_PLACE(kind)                                                                  \
    metal::_atomic<T> *place = atomic_pixel<T>(SOFTMETAL_OF, SOFTMETAL_PIXEL_##kind);          \
    if (place == nullptr)
#define SOFTMETAL_FETCH(kind, V, name)                                                         \
    SOFTMETAL_INLINE vec<T, 4> name(SOFTMETAL_NAMED_##kind(V), vec<T, 4> by) const {           \
        SOFTMETAL_PLACE(kind) return vec<T, 4>(T(0));                                          \
        return vec<T, 4>(metal::name##_explicit(place, by.x, SOFTMETAL_RELAXED_ORDER), T(0),   \
                         T(0), T(0));                                                          \
    }
#define SOFTMETAL_ATOMICS_OF(kind, V)                                                          \
    SOFTMETAL_FETCH(kind, V, atomic_exchange)                                                  \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_add)                                                 \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_sub)                                                 \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_and)                                                 \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_or)                                                  \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_xor)                                                 \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_min)                                                 \
    SOFTMETAL_FETCH(kind, V, atomic_fetch_max)                                                 \
    SOFTMETAL_INLINE vec<T, 4> atomic_load(SOFTMETAL_NAMED_##kind(V)) const {                  \
        SOFTMETAL_PLACE(kind) return vec<T, 4>(T(0));                                          \
        return vec<T, 4>(metal::atomic_load_explicit(place, SOFTMETAL_RELAXED_ORDER), T(0),    \
                         T(0), T(0));                                                          \
    }                                                                                          \
    SOFTMETAL_INLINE void atomic_store(vec<T, 4> color, SOFTMETAL_NAMED_##kind(V)) const {     \
        SOFTMETAL_PLACE(kind) return;                                                          \
        metal::atomic_store_explicit(place, color.x, SOFTMETAL_RELAXED_ORDER);                 \
    }                                                                                          \
    SOFTMETAL_INLINE bool atomic_compare_exchange_weak(SOFTMETAL_NAMED_##kind(V),              \
                                                       vec<T, 4> *expected, vec<T, 4> desired) \
        const {                                                                                \
        SOFTMETAL_PLACE(kind) return false;                                                    \
        return metal::atomic_compare_exchange_weak_explicit(place, &expected->x, desired.x,    \
                                                            SOFTMETAL_RELAXED_ORDER,           \
                                                            SOFTMETAL_RELAXED_ORDER);          \
    }
#define SOFTMETAL_LONG_ATOMICS_OF(kind, V)                                                     \
    SOFTMETAL_INLINE void atomic_min(SOFTMETAL_NAMED_##kind(V), vec<T, 4> by) const {          \
        SOFTMETAL_PLACE(kind) return;                                                          \
        metal::atomic_min_explicit(place, by.x, SOFTMETAL_RELAXED_ORDER);                      \
    }                                                                                          \
    SOFTMETAL_INLINE void atomic_max(SOFTMETAL_NAMED_##kind(V), vec<T, 4> by) const {          \
        SOFTMETAL_PLACE(kind) return;                                                          \
        metal::atomic_max_explicit(place, by.x, SOFTMETAL_RELAXED_ORDER);                      \
    }
#define SOFTMETAL_ATOMICS(kind)                                                                \
    template <class T, class Base> struct atomics_##kind : Base {                              \
        SOFTMETAL_INLINE void fence() const { fence_texture(SOFTMETAL_OF); }                   \
    };                                                                                         \
    template <class Base> struct atomics_##kind<ulong, Base> : atomics_##kind<void, Base> {    \
        typedef ulong T;                                                                       \
        SOFTMETAL_BOTH_##kind(SOFTMETAL_LONG_ATOMICS_OF)                                       \
    };                                                                                         \
    template <class Base> struct atomics_##kind<int, Base> : atomics_##kind<void, Base> {      \
        typedef int T;                                                                         \
        SOFTMETAL_BOTH_##kind(SOFTMETAL_ATOMICS_OF)                                            \
    };                                                                                         \
    template <class Base> struct atomics_##kind<uint, Base> : atomics_##kind<void, Base> {     \
        typedef uint T;                                                                        \
        SOFTMETAL_BOTH_##kind(SOFTMETAL_ATOMICS_OF)                                            \
    };
SOFTMETAL_ATOMICS(1d)
SOFTMETAL_ATOMICS(buffer)
SOFTMETAL_ATOMICS(1d_array)
SOFTMETAL_ATOMICS(2d)
SOFTMETAL_ATOMICS(2d_array)
SOFTMETAL_ATOMICS(3d)
SOFTMETAL_ATOMICS(cube)
SOFTMETAL_ATOMICS(cube_array)

/* ---- samples ---- */

/* For each kind: what says where; that as four floats, with what is compared; the slice; by how much it may be moved;
 * its gradient. */
#define SOFTMETAL_POINT_1d float coord
#define SOFTMETAL_AT_1d(compared) coord, 0.0f, 0.0f, compared
#define SOFTMETAL_SLICE_1d 0
#define SOFTMETAL_POINT_1d_array float coord, uint array
#define SOFTMETAL_AT_1d_array(compared) coord, 0.0f, 0.0f, compared
#define SOFTMETAL_SLICE_1d_array array
#define SOFTMETAL_POINT_2d vec<float, 2> coord
#define SOFTMETAL_AT_2d(compared) coord.x, coord.y, 0.0f, compared
#define SOFTMETAL_SLICE_2d 0
#define SOFTMETAL_MOVE_2d , vec<int, 2> offset = vec<int, 2>(0)
#define SOFTMETAL_HOW_2d(what, of) SOFT_SAMPLING(what, of, offset.x, offset.y, 0)
#define SOFTMETAL_GRADIENT_2d metal::gradient2d
#define SOFTMETAL_POINT_2d_array vec<float, 2> coord, uint array
#define SOFTMETAL_AT_2d_array(compared) SOFTMETAL_AT_2d(compared)
#define SOFTMETAL_SLICE_2d_array array
#define SOFTMETAL_MOVE_2d_array SOFTMETAL_MOVE_2d
#define SOFTMETAL_HOW_2d_array(what, of) SOFTMETAL_HOW_2d(what, of)
#define SOFTMETAL_GRADIENT_2d_array metal::gradient2d
#define SOFTMETAL_POINT_3d vec<float, 3> coord
#define SOFTMETAL_AT_3d(compared) coord.x, coord.y, coord.z, compared
#define SOFTMETAL_SLICE_3d 0
#define SOFTMETAL_MOVE_3d , vec<int, 3> offset = vec<int, 3>(0)
#define SOFTMETAL_HOW_3d(what, of) SOFT_SAMPLING(what, of, offset.x, offset.y, offset.z)
#define SOFTMETAL_GRADIENT_3d metal::gradient3d
#define SOFTMETAL_POINT_cube vec<float, 3> coord
#define SOFTMETAL_AT_cube(compared) SOFTMETAL_AT_3d(compared)
#define SOFTMETAL_SLICE_cube 0
#define SOFTMETAL_MOVE_cube
#define SOFTMETAL_HOW_cube(what, of) SOFT_SAMPLING(what, of, 0, 0, 0)
#define SOFTMETAL_GRADIENT_cube metal::gradientcube
#define SOFTMETAL_POINT_cube_array vec<float, 3> coord, uint array
#define SOFTMETAL_AT_cube_array(compared) SOFTMETAL_AT_3d(compared)
#define SOFTMETAL_SLICE_cube_array array
#define SOFTMETAL_MOVE_cube_array
#define SOFTMETAL_HOW_cube_array(what, of) SOFTMETAL_HOW_cube(what, of)
#define SOFTMETAL_GRADIENT_cube_array metal::gradientcube

#define SOFTMETAL_SAMPLES_ROW(kind)                                                            \
    template <class T, bool is_depth, class Base> struct samples_##kind : Base {               \
        SOFTMETAL_INLINE auto sample(metal::sampler s, SOFTMETAL_POINT_##kind) const {         \
            soft_floats at = {SOFTMETAL_AT_##kind(0.0f)};                                      \
            return color_of<T>(sample_pixels(SOFTMETAL_OF, s.softmetal_bits, at, first_level,  \
                                             SOFTMETAL_SLICE_##kind,                           \
                                             SOFT_SAMPLING(SOFT_SAMPLE, 0, 0, 0, 0)));         \
        }                                                                                      \
    };
/* What `take` makes of a sample that is told `level`, which may look at where it is. */
#define SOFTMETAL_SAMPLE_AS(kind, take, what, which, compared, level)                          \
    {                                                                                          \
        soft_floats at = {SOFTMETAL_AT_##kind(compared)};                                      \
        return take(sample_pixels(SOFTMETAL_OF, s.softmetal_bits, at, level,                   \
                                  SOFTMETAL_SLICE_##kind, SOFTMETAL_HOW_##kind(what, which))); \
    }
/* A function that samples, without an option, with one, and with a least level beside it. */
#define SOFTMETAL_SAMPLE_FORMS(kind, name, take, what, compared, ...)                          \
    SOFTMETAL_INLINE auto name(metal::sampler s, __VA_ARGS__ SOFTMETAL_MOVE_##kind)            \
        const SOFTMETAL_SAMPLE_AS(kind, take, what, 0, compared, first_level)                  \
            SOFTMETAL_INLINE auto name(metal::sampler s, __VA_ARGS__,                          \
                                       chosen_level<SOFTMETAL_GRADIENT_##kind> lod             \
                                           SOFTMETAL_MOVE_##kind)                              \
                const SOFTMETAL_SAMPLE_AS(kind, take, what, 0, compared,                       \
                                          lod.of(SOFTMETAL_OF, at))                            \
                    SOFTMETAL_INLINE auto name(metal::sampler s, __VA_ARGS__,                  \
                                               bounded_level<SOFTMETAL_GRADIENT_##kind> lod,   \
                                               metal::min_lod_clamp least                      \
                                                   SOFTMETAL_MOVE_##kind)                      \
                        const SOFTMETAL_SAMPLE_AS(kind, take, what, 0, compared,               \
                                                  lod.not_below(least).of(SOFTMETAL_OF, at))
/* A level is computed of how coordinates differ from one fragment to the next. */
#define SOFTMETAL_NO_LOD(name)                                                                 \
    template <class... Where>                                                                  \
    __attribute__((unavailable("only a fragment function may ask for it; choose a level "      \
                               "yourself: level(), gradient2d()"))) float                      \
    name(metal::sampler, Where...) const;
#define SOFTMETAL_SAMPLES_ALONE(kind)                                                          \
    template <class T, bool is_depth, class Base> struct samples_##kind : Base {               \
        SOFTMETAL_NO_LOD(calculate_clamped_lod)                                                \
        SOFTMETAL_NO_LOD(calculate_unclamped_lod)                                              \
        SOFTMETAL_SAMPLE_FORMS(kind, sample, (given<T, is_depth>), SOFT_SAMPLE, 0.0f,          \
                               SOFTMETAL_POINT_##kind)                                         \
    };
#define SOFTMETAL_SAMPLES(kind)                                                                \
    template <class T, bool is_depth, class Base> struct samples_##kind : Base {               \
        SOFTMETAL_NO_LOD(calculate_clamped_lod)                                                \
        SOFTMETAL_NO_LOD(calculate_unclamped_lod)                                              \
        SOFTMETAL_SAMPLE_FORMS(kind, sample, (given<T, is_depth>), SOFT_SAMPLE, 0.0f,          \
                               SOFTMETAL_POINT_##kind)                                         \
        SOFTMETAL_INLINE vec<T, 4> gather(metal::sampler s,                                    \
                                          SOFTMETAL_POINT_##kind SOFTMETAL_MOVE_##kind,        \
                                          metal::component of = metal::component::x) const     \
            SOFTMETAL_SAMPLE_AS(kind, color_of<T>, SOFT_GATHER, of, 0.0f, first_level)         \
    };                                                                                         \
    template <class T, class Base> struct compares_##kind : Base {                             \
        SOFTMETAL_SAMPLE_FORMS(kind, sample_compare, (given<T, true>), SOFT_COMPARE,           \
                               compare_value, SOFTMETAL_POINT_##kind, float compare_value)     \
        SOFTMETAL_INLINE vec<T, 4>                                                             \
        gather_compare(metal::sampler s, SOFTMETAL_POINT_##kind,                               \
                       float compare_value SOFTMETAL_MOVE_##kind) const                        \
            SOFTMETAL_SAMPLE_AS(kind, color_of<T>, SOFT_GATHER | SOFT_COMPARE, 0,              \
                                compare_value, first_level)                                    \
    };
SOFTMETAL_SAMPLES_ROW(1d)
SOFTMETAL_SAMPLES_ROW(1d_array)
SOFTMETAL_SAMPLES(2d)
SOFTMETAL_SAMPLES(2d_array)
SOFTMETAL_SAMPLES_ALONE(3d)
SOFTMETAL_SAMPLES(cube)
SOFTMETAL_SAMPLES(cube_array)

/* ---- which functions an access allows ---- */

/* A type's own class, which a message names, is at the end of the chain. */
#define SOFTMETAL_CHAIN(kind, type)                                                            \
    template <class T, metal::access A> using whole_##kind =                                   \
        sizes_##kind<handle<T, A, type, false>>;                                               \
    template <class T, metal::access A> struct chain_##kind;                                   \
    template <class T> struct chain_##kind<T, metal::access::read>                             \
        : reads_##kind<T, false, whole_##kind<T, metal::access::read>> {};                     \
    template <class T> struct chain_##kind<T, metal::access::write>                            \
        : writes_##kind<T, whole_##kind<T, metal::access::write>> {};
#define SOFTMETAL_READ_WRITE_CHAIN(kind)                                                       \
    template <class T> struct chain_##kind<T, metal::access::read_write>                       \
        : atomics_##kind<                                                                      \
              T, writes_##kind<                                                                \
                     T, reads_##kind<T, false, whole_##kind<T, metal::access::read_write>>>> { \
    };
#define SOFTMETAL_SAMPLE_CHAIN(kind)                                                           \
    template <class T> struct chain_##kind<T, metal::access::sample>                           \
        : samples_##kind<T, false,                                                             \
                         reads_##kind<T, false, whole_##kind<T, metal::access::sample>>> {};
#define SOFTMETAL_DEPTH_CHAIN(kind, type)                                                      \
    template <class T, metal::access A> using depths_##kind =                                  \
        reads_##kind<T, true, sizes_##kind<handle<T, A, type, true>>>;                         \
    template <class T, metal::access A> struct depth_chain_##kind;                             \
    template <class T> struct depth_chain_##kind<T, metal::access::read>                       \
        : depths_##kind<T, metal::access::read> {};
#define SOFTMETAL_DEPTH_SAMPLE_CHAIN(kind)                                                     \
    template <class T> struct depth_chain_##kind<T, metal::access::sample>                     \
        : compares_##kind<T,                                                                   \
                          samples_##kind<T, true, depths_##kind<T, metal::access::sample>>> {  \
    };

/* MTLTextureType's numbers */
#define SOFTMETAL_FULL_CHAIN(kind, type)                                                       \
    SOFTMETAL_CHAIN(kind, type)                                                                \
    SOFTMETAL_READ_WRITE_CHAIN(kind) SOFTMETAL_SAMPLE_CHAIN(kind)
SOFTMETAL_FULL_CHAIN(1d, 0)
SOFTMETAL_FULL_CHAIN(1d_array, 1)
SOFTMETAL_FULL_CHAIN(2d, 2)
SOFTMETAL_FULL_CHAIN(2d_array, 3)
SOFTMETAL_CHAIN(2d_ms, 4)
SOFTMETAL_FULL_CHAIN(cube, 5)
SOFTMETAL_FULL_CHAIN(cube_array, 6)
SOFTMETAL_FULL_CHAIN(3d, 7)
SOFTMETAL_CHAIN(2d_ms_array, 8)
SOFTMETAL_CHAIN(buffer, 9)
SOFTMETAL_READ_WRITE_CHAIN(buffer)
SOFTMETAL_DEPTH_CHAIN(2d, 2)
SOFTMETAL_DEPTH_SAMPLE_CHAIN(2d)
SOFTMETAL_DEPTH_CHAIN(2d_array, 3)
SOFTMETAL_DEPTH_SAMPLE_CHAIN(2d_array)
SOFTMETAL_DEPTH_CHAIN(2d_ms, 4)
SOFTMETAL_DEPTH_CHAIN(cube, 5)
SOFTMETAL_DEPTH_SAMPLE_CHAIN(cube)
SOFTMETAL_DEPTH_CHAIN(cube_array, 6)
SOFTMETAL_DEPTH_SAMPLE_CHAIN(cube_array)
SOFTMETAL_DEPTH_CHAIN(2d_ms_array, 8)
} // namespace softmetal

namespace metal {
#define SOFTMETAL_TEXTURE(name, chain, default_access)                                         \
    template <class T, access A = access::default_access,                                      \
              memory_coherence C = memory_coherence::memory_coherence_threadgroup>             \
    struct name : softmetal::chain<T, A> {};
SOFTMETAL_TEXTURE(texture1d, chain_1d, sample)
SOFTMETAL_TEXTURE(texture1d_array, chain_1d_array, sample)
SOFTMETAL_TEXTURE(texture2d, chain_2d, sample)
SOFTMETAL_TEXTURE(texture2d_array, chain_2d_array, sample)
SOFTMETAL_TEXTURE(texture2d_ms, chain_2d_ms, read)
SOFTMETAL_TEXTURE(texture2d_ms_array, chain_2d_ms_array, read)
SOFTMETAL_TEXTURE(texture3d, chain_3d, sample)
SOFTMETAL_TEXTURE(texturecube, chain_cube, sample)
SOFTMETAL_TEXTURE(texturecube_array, chain_cube_array, sample)
SOFTMETAL_TEXTURE(texture_buffer, chain_buffer, read)
SOFTMETAL_TEXTURE(depth2d, depth_chain_2d, sample)
SOFTMETAL_TEXTURE(depth2d_array, depth_chain_2d_array, sample)
SOFTMETAL_TEXTURE(depth2d_ms, depth_chain_2d_ms, read)
SOFTMETAL_TEXTURE(depth2d_ms_array, depth_chain_2d_ms_array, read)
SOFTMETAL_TEXTURE(depthcube, depth_chain_cube, sample)
SOFTMETAL_TEXTURE(depthcube_array, depth_chain_cube_array, sample)
#undef SOFTMETAL_TEXTURE

template <class Texture, class = typename Texture::softmetal_item>
SOFTMETAL_INLINE bool is_null_texture(Texture texture) {
    return texture.softmetal_texture == nullptr;
}
} // namespace metal

#endif /* SOFTMETAL_TEXTURES_H */
