/* softmetal_simdgroups.h: metal_simdgroup and metal_quadgroup: what lanes tell each other.
 *
 * Owns:    nothing.
 * Calls:   the run time.
 * Threads: each function waits until the lanes that take part have come.
 *
 * Lanes that have ended, or stand elsewhere, are inactive: sums leave them out, and a value
 * asked of them is the caller's own, or its filling.  Sums go from the lowest lane up.
 */
#ifndef SOFTMETAL_SIMDGROUPS_H
#define SOFTMETAL_SIMDGROUPS_H

#include "softmetal_math.h"
#include "softmetal_synchronization.h"

namespace metal {
/* Apple's own name for what lanes can exchange, which real libraries ask: neither 64 bits nor bfloat. */
template <class T, class = void> struct __is_valid_simdgroup_type
    : bool_constant<is_arithmetic_v<T> && sizeof(T) <= 4 && !is_same_v<T, bool> &&
                    !is_same_v<T, bfloat>> {};
template <class T, int N> struct __is_valid_simdgroup_type<vec<T, N>>
    : __is_valid_simdgroup_type<T> {};
} // namespace metal

namespace softmetal {
/* The lane that another one is, seen from this one, among `width` neighbours. */
struct neighbours {
    uint lane, width;
    SOFTMETAL_INLINE uint first() const {
        return width == SOFT_SIMD_WIDTH ? 0 : lane & ~(width - 1);
    }
    SOFTMETAL_INLINE uint place() const { return lane - first(); }
    SOFTMETAL_INLINE uint wrapped(uint place) const { return first() + (place & (width - 1)); }
};

/* A place that a kernel names: Metal gives no meaning to one that its group has not. */
SOFTMETAL_INLINE uint asked(uint place, uint width) {
#if SOFTMETAL_IS_CHECKED
    if (place >= width) stop_kernel(SOFT_STOP_LANE, place, width);
#endif
    return place;
}

template <class T> SOFTMETAL_CONVERGENT T shuffled(T data, uint lane) {
    gathered<T> all = gather(data);
    T there = all.from(lane % SOFT_SIMD_WIDTH); /* some bytes, where no lane came */
    return all.has(lane) ? there : data;
}
/* From a place of this lane's group of `width`; this lane's own data where there is none. */
template <class T> SOFTMETAL_CONVERGENT T shifted(T data, int by, uint width) {
    neighbours at = {this_lane(), width};
    uint place = at.place() + uint(by);
    return shuffled(data, place < width ? at.first() + place : at.lane);
}
template <class T> SOFTMETAL_CONVERGENT T turned(T data, int by, uint width) {
    neighbours at = {this_lane(), width};
    return shuffled(data, at.wrapped(at.place() + uint(by)));
}
/* What leaves the data at one end comes from the other end of `filling`.  For a lane that is not
 * there, it is the caller's filling: PyTorch's tests of its own reductions, which a Mac passes,
 * sum 28 lanes so. */
template <class T> SOFTMETAL_CONVERGENT T filled(T data, T filling, int by, uint width) {
    neighbours at = {this_lane(), width};
    uint place = at.place() + uint(by), lane = at.wrapped(place);
    gathered<T> all = gather(data);
    T there = all.from(lane % SOFT_SIMD_WIDTH);
    T inside = all.has(lane) ? there : filling, outside = shuffled(filling, lane);
    return place < width ? inside : outside;
}

/* f over the active lanes of this lane's group of `width`, or of those before one; `start` where
 * there is none. */
enum stops { end_of_group, past_this_lane, before_this_lane };
template <class T, class F>
SOFTMETAL_CONVERGENT T folded(T data, uint width, stops stop, T start, F f) {
    gathered<T> all = gather(data);
    neighbours at = {this_lane(), width};
    uint end = stop == end_of_group ? at.first() + width : at.lane + (stop == past_this_lane);
    T sum = start;
    if (all.lanes == ~0u) { /* without a question for each lane: as vectors */
        T one = all.from(at.first());
        sum = at.first() < end ? one : start;
#pragma unroll
        for (uint place = 1; place < width; place++) {
            T more = T(f(sum, all.from(at.first() + place)));
            sum = at.first() + place < end ? more : sum;
        }
        return sum;
    }
    bool is_first = true;
    for (uint lane = at.first(); lane < end; lane++) {
        if (!all.has(lane)) continue;
        T next = all.from(lane);
        sum = is_first ? next : T(f(sum, next));
        is_first = false;
    }
    return sum;
}

/* One bit for each active lane of the group, from its first, whose predicate holds. */
SOFTMETAL_CONVERGENT uint votes(bool predicate, uint width, uint &active) {
    gathered<bool> all = gather(predicate);
    uint first = neighbours{this_lane(), width}.first(), mask = 0;
    for (uint place = 0; place < width; place++)
        if (all.has(first + place) && all.from(first + place)) mask |= 1u << place;
    active = all.lanes >> first & ~0u >> (SOFT_SIMD_WIDTH - width);
    return mask;
}

/* What two lanes make. */
#define SOFTMETAL_FOLD(name, result)                                                           \
    struct name {                                                                              \
        template <class T> SOFTMETAL_INLINE T operator()(T a, T b) const { return T(result); } \
    };
SOFTMETAL_FOLD(plus, a + b)
SOFTMETAL_FOLD(times, a *b)
SOFTMETAL_FOLD(both, a &b)
SOFTMETAL_FOLD(either, a | b)
SOFTMETAL_FOLD(one_of, a ^ b)
SOFTMETAL_FOLD(smaller, metal::min(a, b))
SOFTMETAL_FOLD(larger, metal::max(a, b))
SOFTMETAL_FOLD(keep_first, a)
#undef SOFTMETAL_FOLD
} // namespace softmetal

namespace metal {
/* Bits of lanes; 32 of them are a SIMD-group, 4 a quad-group. */
template <class Bits, Bits everyone> struct softmetal_vote {
    typedef Bits vote_t;
    SOFTMETAL_INLINE explicit constexpr softmetal_vote(vote_t bits = 0) : bits(bits) {}
    SOFTMETAL_INLINE explicit constexpr operator vote_t() const { return bits; }
    SOFTMETAL_INLINE constexpr bool all() const { return (bits & everyone) == everyone; }
    SOFTMETAL_INLINE constexpr bool any() const { return (bits & everyone) != 0; }

  private:
    vote_t bits;
};
typedef softmetal_vote<ulong, 0xffffffff> simd_vote;
typedef softmetal_vote<ushort, 0xf> quad_vote;

/* SPEC Metal Shading Language Specification 3.2, 6.9.2 SIMD-Group Functions: T is a scalar or a
 * vector. */
#define SOFTMETAL_LANES                                                                        \
    template <class T> __attribute__((diagnose_if(                                             \
        (__is_class(T) || __is_union(T)) && !is_vector_v<T> && !__is_same(T, bfloat),          \
        "lanes exchange scalars and vectors alone: call this for each field of the structure", \
        "error"))) SOFTMETAL_CONVERGENT T

/* The group that a function's name begins with, and its width. */
#define SOFTMETAL_SHUFFLES(group, WIDTH)                                                       \
    SOFTMETAL_LANES group##_shuffle(T data, ushort lane) {                                     \
        softmetal::neighbours at = {softmetal::this_lane(), WIDTH};                            \
        return softmetal::shuffled(data, at.first() + softmetal::asked(lane, WIDTH));          \
    }                                                                                          \
    SOFTMETAL_LANES group##_broadcast(T data, ushort lane) {                                   \
        return group##_shuffle(data, lane);                                                    \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_xor(T data, ushort mask) {                                 \
        softmetal::neighbours at = {softmetal::this_lane(), WIDTH};                            \
        return softmetal::shuffled(data,                                                       \
                                   at.wrapped(softmetal::asked(at.place() ^ mask, WIDTH)));    \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_up(T data, ushort delta) {                                 \
        return softmetal::shifted(data, -int(delta), WIDTH);                                   \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_down(T data, ushort delta) {                               \
        return softmetal::shifted(data, int(delta), WIDTH);                                    \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_rotate_up(T data, ushort delta) {                          \
        return softmetal::turned(data, -int(delta), WIDTH);                                    \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_rotate_down(T data, ushort delta) {                        \
        return softmetal::turned(data, int(delta), WIDTH);                                     \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_and_fill_up(T data, T filling, ushort delta,               \
                                                ushort modulo = WIDTH) {                       \
        return softmetal::filled(data, filling, -int(delta), modulo);                          \
    }                                                                                          \
    SOFTMETAL_LANES group##_shuffle_and_fill_down(T data, T filling, ushort delta,             \
                                                  ushort modulo = WIDTH) {                     \
        return softmetal::filled(data, filling, int(delta), modulo);                           \
    }

/* A result over the whole group, and over the lanes before one. */
#define SOFTMETAL_FOLDED(group, WIDTH, name, stop, start, operation)                           \
    SOFTMETAL_LANES group##_##name(T data) {                                                   \
        return softmetal::folded(data, WIDTH, softmetal::stop, T(start),                       \
                                 softmetal::operation());                                      \
    }
#define SOFTMETAL_REDUCTION(group, WIDTH, name, operation)                                     \
    SOFTMETAL_FOLDED(group, WIDTH, name, end_of_group, data, operation)
#define SOFTMETAL_SCAN(group, WIDTH, name, operation, nothing)                                 \
    SOFTMETAL_FOLDED(group, WIDTH, prefix_inclusive_##name, past_this_lane, data, operation)   \
    SOFTMETAL_FOLDED(group, WIDTH, prefix_exclusive_##name, before_this_lane, nothing,         \
                     operation)

#define SOFTMETAL_VOTES(group, WIDTH)                                                          \
    SOFTMETAL_CONVERGENT group##_vote group##_ballot(bool predicate) {                         \
        uint active;                                                                           \
        return group##_vote(group##_vote::vote_t(softmetal::votes(predicate, WIDTH, active))); \
    }                                                                                          \
    SOFTMETAL_CONVERGENT bool group##_all(bool predicate) {                                    \
        uint active, mask = softmetal::votes(predicate, WIDTH, active);                        \
        return mask == active;                                                                 \
    }                                                                                          \
    SOFTMETAL_CONVERGENT bool group##_any(bool predicate) {                                    \
        uint active;                                                                           \
        return softmetal::votes(predicate, WIDTH, active) != 0;                                \
    }                                                                                          \
    SOFTMETAL_CONVERGENT group##_vote group##_active_threads_mask() {                          \
        return group##_ballot(true);                                                           \
    }                                                                                          \
    SOFTMETAL_CONVERGENT bool group##_is_first() {                                             \
        uint active, mask = softmetal::votes(true, WIDTH, active);                             \
        return uint(__builtin_ctz(mask)) == softmetal::this_lane() % WIDTH;                    \
    }

#define SOFTMETAL_GROUP(group, WIDTH)                                                          \
    SOFTMETAL_SHUFFLES(group, WIDTH)                                                           \
    SOFTMETAL_VOTES(group, WIDTH)                                                              \
    SOFTMETAL_REDUCTION(group, WIDTH, broadcast_first, keep_first)                             \
    SOFTMETAL_REDUCTION(group, WIDTH, sum, plus)                                               \
    SOFTMETAL_REDUCTION(group, WIDTH, product, times)                                          \
    SOFTMETAL_REDUCTION(group, WIDTH, min, smaller)                                            \
    SOFTMETAL_REDUCTION(group, WIDTH, max, larger)                                             \
    SOFTMETAL_REDUCTION(group, WIDTH, and, both)                                               \
    SOFTMETAL_REDUCTION(group, WIDTH, or, either)                                              \
    SOFTMETAL_REDUCTION(group, WIDTH, xor, one_of)                                             \
    SOFTMETAL_SCAN(group, WIDTH, sum, plus, 0)                                                 \
    SOFTMETAL_SCAN(group, WIDTH, product, times, 1)
SOFTMETAL_GROUP(simd, SOFT_SIMD_WIDTH)
SOFTMETAL_GROUP(quad, 4)
#undef SOFTMETAL_GROUP
#undef SOFTMETAL_VOTES
#undef SOFTMETAL_SCAN
#undef SOFTMETAL_REDUCTION
#undef SOFTMETAL_FOLDED
#undef SOFTMETAL_SHUFFLES
#undef SOFTMETAL_LANES
SOFTMETAL_INLINE bool simd_is_helper_thread() { return false; }
} // namespace metal

#endif /* SOFTMETAL_SIMDGROUPS_H */
