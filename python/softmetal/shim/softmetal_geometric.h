/* softmetal_geometric.h: metal_geometric: dot, cross, length and what follows from them.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: every function is pure.
 */
#ifndef SOFTMETAL_GEOMETRIC_H
#define SOFTMETAL_GEOMETRIC_H

#include "softmetal_math.h"

namespace softmetal {
/* Where a vector must come, packed or not. */
template <class V> using vector_argument = enable_if_t<shape<V>::is_vector, met<V>>;
} // namespace softmetal

namespace metal {
/* The other functions use this one, on vectors of one type; packed ones come as vectors. */
template <class T> SOFTMETAL_INLINE constexpr T dot(vec<T, 2> a, vec<T, 2> b) {
    return T(a.x * b.x + a.y * b.y);
}
template <class T> SOFTMETAL_INLINE constexpr T dot(vec<T, 3> a, vec<T, 3> b) {
    return T(a.x * b.x + a.y * b.y + a.z * b.z);
}
template <class T> SOFTMETAL_INLINE constexpr T dot(vec<T, 4> a, vec<T, 4> b) {
    return T(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w);
}
template <class A, class B, class M = softmetal::mixed<A, B>>
SOFTMETAL_INLINE constexpr auto dot(A a, B b) {
    return dot(M(a), M(b));
}
template <class T> SOFTMETAL_INLINE constexpr vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
    return a.get_yzx() * b.get_zxy() - a.get_zxy() * b.get_yzx();
}
template <class A, class B, class M = softmetal::mixed<A, B>>
SOFTMETAL_INLINE constexpr auto cross(A a, B b) {
    return cross(M(a), M(b));
}

template <class V, class M = softmetal::vector_argument<V>>
SOFTMETAL_INLINE auto length_squared(V a) {
    return dot(M(a), M(a));
}
template <class V, class M = softmetal::vector_argument<V>> SOFTMETAL_INLINE auto length(V a) {
    return sqrt(length_squared(a));
}
template <class A, class B, class M = softmetal::vector_argument<A>>
SOFTMETAL_INLINE auto distance_squared(A a, B b) {
    return length_squared(M(a) - M(b));
}
template <class A, class B, class M = softmetal::vector_argument<A>>
SOFTMETAL_INLINE auto distance(A a, B b) {
    return length(M(a) - M(b));
}
template <class V, class M = softmetal::vector_argument<V>> SOFTMETAL_INLINE M normalize(V a) {
    return M(a) * rsqrt(length_squared(a));
}
template <class V, class I, class R, class M = softmetal::vector_argument<V>>
SOFTMETAL_INLINE M faceforward(V normal, I incident, R reference) {
    return dot(M(incident), M(reference)) < 0 ? M(normal) : -M(normal);
}
template <class I, class V, class M = softmetal::vector_argument<I>>
SOFTMETAL_INLINE M reflect(I incident, V normal) {
    return M(incident) - M(normal) * (2 * dot(M(normal), M(incident)));
}
template <class I, class V, class S, class M = softmetal::vector_argument<I>>
SOFTMETAL_INLINE M refract(I incident, V normal, S eta) {
    typedef softmetal::element_of<M> T;
    T cosine = dot(M(normal), M(incident));
    T k = T(1) - T(eta) * T(eta) * (T(1) - cosine * cosine);
    if (k < T(0)) return M(0);
    return M(incident) * T(eta) - M(normal) * (T(eta) * cosine + sqrt(k));
}

SOFTMETAL_ACCURACIES(metal::cross, metal::distance, metal::distance_squared, metal::dot,
                     metal::faceforward, metal::length, metal::length_squared, metal::normalize,
                     metal::reflect, metal::refract)
} // namespace metal

#endif /* SOFTMETAL_GEOMETRIC_H */
