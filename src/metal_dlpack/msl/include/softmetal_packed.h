/* softmetal_packed.h: packed_vec, a vector without padding, aligned as its element is.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: a vector is a value.
 *
 * It converts to its vector and back; the third parameter makes the vector's operators known to
 * it (a friend is looked up among the classes of a template's arguments).
 */
#ifndef SOFTMETAL_PACKED_H
#define SOFTMETAL_PACKED_H

#define SOFTMETAL_UNPACK(c, from) from.c
#define SOFTMETAL_PACKED_ASSIGN(op, ...)                                                       \
    template <int = 0> SOFTMETAL_INLINE constexpr packed_vec &operator op## = (Vector b) {     \
        return *this = Vector(*this) op b;                                                     \
    }

#define SOFTMETAL_PACKED_VECTOR(N, EACH)                                                       \
    SOFTMETAL_COMPONENTS(packed_vec, N, EACH)                                                  \
    SOFTMETAL_INLINE constexpr packed_vec(Vector v) : EACH(SOFTMETAL_FROM, v) {}               \
    template <class A, class B, class... More>                                                 \
    SOFTMETAL_INLINE constexpr packed_vec(A a, B b, More... more)                              \
        : packed_vec(Vector(a, b, more...)) {}                                                 \
    SOFTMETAL_INLINE constexpr operator Vector() const {                                       \
        return Vector(EACH(SOFTMETAL_UNPACK, (*this)));                                        \
    }                                                                                          \
    SOFTMETAL_ARITHMETIC(SOFTMETAL_PACKED_ASSIGN)                                              \
    SOFTMETAL_PACKED_ASSIGN(<<)                                                                \
    SOFTMETAL_PACKED_ASSIGN(>>)

namespace metal {
template <class T, class Vector> struct packed_vec<T, 2, Vector> {
    T x, y;
    SOFTMETAL_PACKED_VECTOR(2, SOFTMETAL_EACH_2)
};
template <class T, class Vector> struct packed_vec<T, 3, Vector> {
    T x, y, z;
    SOFTMETAL_PACKED_VECTOR(3, SOFTMETAL_EACH_3)
};
template <class T, class Vector> struct packed_vec<T, 4, Vector> {
    T x, y, z, w;
    SOFTMETAL_PACKED_VECTOR(4, SOFTMETAL_EACH_4)
};
} // namespace metal

#endif /* SOFTMETAL_PACKED_H */
