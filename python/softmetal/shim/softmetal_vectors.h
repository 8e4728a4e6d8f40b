/* softmetal_vectors.h: vec<T, 2>, vec<T, 3>, vec<T, 4>, and their names: float4, ushort2, ...
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: a vector is a value.
 *
 * Classes, since clang's own vectors take no `float4(a.xy, 0, 1)`.  A scalar converts to a
 * vector by itself; between vectors of other types a conversion is written out, as in Metal.
 */
#ifndef SOFTMETAL_VECTORS_H
#define SOFTMETAL_VECTORS_H

#include "softmetal_kernel.h"
#include "softmetal_swizzles.h"

/* M(operator, more) for each operator. */
#define SOFTMETAL_CONTRACTED(M, ...) M(+, __VA_ARGS__) M(-, __VA_ARGS__) M(*, __VA_ARGS__)
#define SOFTMETAL_ARITHMETIC(M, ...)                                                           \
    SOFTMETAL_CONTRACTED(M, __VA_ARGS__)                                                       \
    M(/, __VA_ARGS__) M(%, __VA_ARGS__) M(&, __VA_ARGS__) M(|, __VA_ARGS__) M(^, __VA_ARGS__)
#define SOFTMETAL_COMPARISONS(M, ...)                                                          \
    M(==, __VA_ARGS__)                                                                         \
    M(!=, __VA_ARGS__)                                                                         \
    M(<, __VA_ARGS__)                                                                          \
    M(>, __VA_ARGS__)                                                                          \
    M(<=, __VA_ARGS__) M(>=, __VA_ARGS__) M(&&, __VA_ARGS__) M(||, __VA_ARGS__)

namespace metal {
template <class T, int N> struct vec;
template <class T, int N, class Vector = vec<T, N>> struct packed_vec;
} // namespace metal

namespace softmetal {
using metal::enable_if_t, metal::is_arithmetic_v, metal::is_enum_v, metal::is_integral_v,
    metal::packed_vec, metal::vec;

/* What a type is made of: a scalar is a vector of one. */
template <class T> struct shape {
    typedef T element;
    static constexpr int count = 1;
    static constexpr bool is_vector = false;
};
template <class T, int N> struct shape<vec<T, N>> {
    typedef T element;
    static constexpr int count = N;
    static constexpr bool is_vector = true;
};
template <class T, int N> struct shape<packed_vec<T, N>> : shape<vec<T, N>> {};
template <class T> using element_of = typename shape<T>::element;

template <class By, class Vector> using if_other_amount =
    enable_if_t<shape<By>::is_vector &&
                shape<By>::count == shape<Vector>::count &&__is_integral(element_of<By>) &&
                __is_integral(element_of<Vector>) &&
                !__is_same(element_of<By>, element_of<Vector>)>;

template <class S> using if_scalar = enable_if_t<is_arithmetic_v<S> || is_enum_v<S>>;

/* Called by a checked image: the kernel must not go on (SOFT_STOP_...). */
void stop_kernel(soft_u32 why, soft_u64 first, soft_u64 second);

/* Which of N components an index names; a checked image reports one that is none. */
SOFTMETAL_INLINE constexpr size_t component(size_t i, size_t count) {
#if SOFTMETAL_IS_CHECKED
    if (!__builtin_is_constant_evaluated() && i >= count)
        stop_kernel(SOFT_STOP_VECTOR, i, count);
#endif
    return i;
}

/* Components of a vector, to be changed by an operator; the translator writes it in templates. */
template <class Vector, class T, int... I> struct part {
    Vector &whole;
#define SOFTMETAL_CHANGE(op, ...)                                                              \
    SOFTMETAL_INLINE constexpr void operator op## = (vec<T, sizeof...(I)> by) {                \
        int nth = 0;                                                                           \
        ((whole[I] op## = by[nth++]), ...);                                                    \
    }
    SOFTMETAL_ARITHMETIC(SOFTMETAL_CHANGE)
#undef SOFTMETAL_CHANGE
};

/* A shift takes the low bits of its amount, as many as the type's width needs; a checked image
 * reports an amount that has more. */
template <class T> SOFTMETAL_INLINE constexpr T shift_amount(T by) {
    constexpr T most = T(8 * sizeof(T) - 1);
#if SOFTMETAL_IS_CHECKED
    if (!__builtin_is_constant_evaluated() && (by & most) != by)
        stop_kernel(SOFT_STOP_SHIFT, soft_u64(by), 8 * sizeof(T));
#endif
    return by & most;
}
} // namespace softmetal

/* M(component, more) for each component of a vector of N, with commas between. */
#define SOFTMETAL_EACH_2(M, ...) M(x, __VA_ARGS__), M(y, __VA_ARGS__)
#define SOFTMETAL_EACH_3(M, ...) SOFTMETAL_EACH_2(M, __VA_ARGS__), M(z, __VA_ARGS__)
#define SOFTMETAL_EACH_4(M, ...) SOFTMETAL_EACH_3(M, __VA_ARGS__), M(w, __VA_ARGS__)

#define SOFTMETAL_SET_2(o) x = o.x, y = o.y
#define SOFTMETAL_SET_3(o) SOFTMETAL_SET_2(o), z = o.z
#define SOFTMETAL_SET_4(o) SOFTMETAL_SET_3(o), w = o.w
#define SOFTMETAL_BINARY(c, op) T(a.c op b.c)
#define SOFTMETAL_SHIFTED(c, op) T(a.c op softmetal::shift_amount(b.c))
#define SOFTMETAL_COMPARED(c, op) bool(a.c op b.c)
#define SOFTMETAL_UNARY(c, op) T(op a.c)
#define SOFTMETAL_FILL(c, value) c(value)
#define SOFTMETAL_FROM(c, other) c(T(other.c))

/* Templates, so that those of softmetal::exact, which are none, come first where it is open. */
#define SOFTMETAL_OPERATOR(op, EACH, term)                                                     \
    template <int = 0> friend SOFTMETAL_INLINE constexpr vec operator op(vec a, vec b) {       \
        return vec(EACH(term, op));                                                            \
    }                                                                                          \
    template <int = 0> SOFTMETAL_INLINE constexpr vec &operator op## = (vec b) {               \
        return *this = *this op b;                                                             \
    }                                                                                          \
    template <int = 0> SOFTMETAL_INLINE volatile vec &operator op## = (vec b) volatile {       \
        return *this = vec(*this) op b;                                                        \
    }
/* By a vector of another integer type, packed or not. */
#define SOFTMETAL_SHIFT(op, EACH)                                                              \
    SOFTMETAL_OPERATOR(op, EACH, SOFTMETAL_SHIFTED)                                            \
    template <class By, class = softmetal::if_other_amount<By, vec>>                           \
    friend SOFTMETAL_INLINE constexpr vec operator op(vec a, By by) {                          \
        return a op vec(by);                                                                   \
    }                                                                                          \
    template <class By, class = softmetal::if_other_amount<By, vec>>                           \
    SOFTMETAL_INLINE constexpr vec &operator op## = (By by) {                                  \
        return *this = *this op vec(by);                                                       \
    }
#define SOFTMETAL_COMPARISON(op, N, EACH)                                                      \
    friend SOFTMETAL_INLINE constexpr vec<bool, N> operator op(vec a, vec b) {                 \
        return vec<bool, N>(EACH(SOFTMETAL_COMPARED, op));                                     \
    }
#define SOFTMETAL_SIGN(op, EACH)                                                               \
    friend SOFTMETAL_INLINE constexpr vec operator op(vec a) {                                 \
        return vec(EACH(SOFTMETAL_UNARY, op));                                                 \
    }
#define SOFTMETAL_STEP(op, change)                                                             \
    SOFTMETAL_INLINE constexpr vec &operator op() { return *this change vec(1); }              \
    SOFTMETAL_INLINE constexpr vec operator op(int) {                                          \
        vec before = *this;                                                                    \
        op *this;                                                                              \
        return before;                                                                         \
    }

/* What vectors of 2, 3 and 4 share, packed or not; V is vec or packed_vec. */
#define SOFTMETAL_COMPONENTS(V, N, EACH)                                                       \
    V() = default;                                                                             \
    template <class S, class = softmetal::if_scalar<S>> SOFTMETAL_INLINE constexpr V(S s)      \
        : EACH(SOFTMETAL_FILL, T(s)) {}                                                        \
    template <class S, class = softmetal::enable_if_t<!__is_same(S, T)>>                       \
    SOFTMETAL_INLINE explicit constexpr V(vec<S, N> o) : EACH(SOFTMETAL_FROM, o) {}            \
    template <class S, class = softmetal::enable_if_t<!__is_same(S, T)>>                       \
    SOFTMETAL_INLINE explicit constexpr V(packed_vec<S, N> o) : EACH(SOFTMETAL_FROM, o) {}     \
    /* Templates, so that a vector is copied as its bytes are. */                              \
    template <int = 0> SOFTMETAL_INLINE V(const volatile V &o) : EACH(SOFTMETAL_FROM, o) {}    \
    template <int = 0> SOFTMETAL_INLINE volatile V &operator=(V o) volatile {                  \
        SOFTMETAL_SET_##N(o);                                                                  \
        return *this;                                                                          \
    }                                                                                          \
    template <int = 0> SOFTMETAL_INLINE volatile T &operator[](size_t i) volatile {            \
        return (&x)[softmetal::component(i, N)];                                               \
    }                                                                                          \
    template <int = 0> SOFTMETAL_INLINE const volatile T &operator[](size_t i)                 \
        const volatile {                                                                       \
        return (&x)[softmetal::component(i, N)];                                               \
    }                                                                                          \
    SOFTMETAL_INLINE constexpr T &operator[](size_t i) {                                       \
        return (&x)[softmetal::component(i, N)];                                               \
    }                                                                                          \
    SOFTMETAL_INLINE constexpr const T &operator[](size_t i) const {                           \
        return (&x)[softmetal::component(i, N)];                                               \
    }                                                                                          \
    template <int... I> SOFTMETAL_INLINE constexpr softmetal::part<V, T, I...> part() {        \
        return {*this};                                                                        \
    }                                                                                          \
    SOFTMETAL_SWIZZLES(N)

/* The operators are friends, so that a scalar or a packed vector on one side converts. */
#define SOFTMETAL_VECTOR(N, EACH)                                                              \
    SOFTMETAL_COMPONENTS(vec, N, EACH)                                                         \
    SOFTMETAL_ARITHMETIC(SOFTMETAL_OPERATOR, EACH, SOFTMETAL_BINARY)                           \
    SOFTMETAL_SHIFT(<<, EACH)                                                                  \
    SOFTMETAL_SHIFT(>>, EACH)                                                                  \
    SOFTMETAL_COMPARISONS(SOFTMETAL_COMPARISON, N, EACH)                                       \
    SOFTMETAL_SIGN(-, EACH)                                                                    \
    SOFTMETAL_SIGN(+, EACH)                                                                    \
    SOFTMETAL_SIGN(~, EACH)                                                                    \
    SOFTMETAL_STEP(++, +=)                                                                     \
    SOFTMETAL_STEP(--, -=)                                                                     \
    friend SOFTMETAL_INLINE constexpr vec<bool, N> operator!(vec a) { return a == vec(0); }

namespace metal {
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    SOFTMETAL_INLINE constexpr vec(T x, T y) : x(x), y(y) {}
    SOFTMETAL_VECTOR(2, SOFTMETAL_EACH_2)
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    T x, y, z;
    SOFTMETAL_INLINE constexpr vec(T x, T y, T z) : x(x), y(y), z(z) {}
    SOFTMETAL_INLINE constexpr vec(vec<T, 2> xy, T z) : x(xy.x), y(xy.y), z(z) {}
    SOFTMETAL_INLINE constexpr vec(T x, vec<T, 2> yz) : x(x), y(yz.x), z(yz.y) {}
    /* A fourth place without a name.  Else clang for arm64 copies three of four by way of the
     * stack, and there a product joins no sum and a loop of threads becomes no vectors. */
    unsigned _BitInt(8 * sizeof(T)) : 8 * sizeof(T);
    SOFTMETAL_VECTOR(3, SOFTMETAL_EACH_3)
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    SOFTMETAL_INLINE constexpr vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    SOFTMETAL_INLINE constexpr vec(vec<T, 2> a, T z, T w) : vec(a.x, a.y, z, w) {}
    SOFTMETAL_INLINE constexpr vec(T x, vec<T, 2> b, T w) : vec(x, b.x, b.y, w) {}
    SOFTMETAL_INLINE constexpr vec(T x, T y, vec<T, 2> c) : vec(x, y, c.x, c.y) {}
    /* uint4 v = {1, 2, 3}: what a list leaves out is zero. */
    SOFTMETAL_INLINE constexpr vec(T x, T y, T z) : vec(x, y, z, T(0)) {}
    /* Three of four: a number is no vector of two here. */
    vec(vec<T, 2> a, T z) = delete;
    vec(T x, vec<T, 2> b) = delete;
    SOFTMETAL_INLINE constexpr vec(vec<T, 2> a, vec<T, 2> c) : vec(a.x, a.y, c.x, c.y) {}
    SOFTMETAL_INLINE constexpr vec(vec<T, 3> a, T w) : vec(a.x, a.y, a.z, w) {}
    SOFTMETAL_INLINE constexpr vec(T x, vec<T, 3> b) : vec(x, b.x, b.y, b.z) {}
    SOFTMETAL_VECTOR(4, SOFTMETAL_EACH_4)
};
} // namespace metal

/* ---- packed_vec: a vector without padding, aligned as its element is ---- */

/* It converts to its vector and back; the third parameter makes the vector's operators known to
 * it (a friend is looked up among the classes of a template's arguments). */
#define SOFTMETAL_UNPACK(c, from) from.c
#define SOFTMETAL_PACKED_ASSIGN(op, ...)                                                       \
    template <int = 0> SOFTMETAL_INLINE constexpr packed_vec &operator op## = (Vector b) {     \
        return *this = Vector(*this) op b;                                                     \
    }                                                                                          \
    template <int = 0> SOFTMETAL_INLINE volatile packed_vec &operator op## =                   \
        (Vector b) volatile {                                                                  \
        return *this = packed_vec(Vector(*this) op b);                                         \
    }
/* By a vector of another integer type. */
#define SOFTMETAL_PACKED_SHIFT(op)                                                             \
    SOFTMETAL_PACKED_ASSIGN(op)                                                                \
    template <class By, class = softmetal::if_other_amount<By, Vector>>                        \
    SOFTMETAL_INLINE constexpr packed_vec &operator op## = (By by) {                           \
        return *this = Vector(*this) op Vector(by);                                            \
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
    template <int = 0> SOFTMETAL_INLINE operator Vector() const volatile {                     \
        return Vector(EACH(SOFTMETAL_UNPACK, (*this)));                                        \
    }                                                                                          \
    SOFTMETAL_ARITHMETIC(SOFTMETAL_PACKED_ASSIGN)                                              \
    SOFTMETAL_PACKED_SHIFT(<<)                                                                 \
    SOFTMETAL_PACKED_SHIFT(>>)

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

/* The names of each vector type: float4 and packed_float4, everywhere; and of those that have them,
 * those of simd/simd.h: simd::float4, simd_float4, vector_float4. */
#define SOFTMETAL_NAME_VECTOR(T, N)                                                            \
    typedef metal::vec<T, N> T##N;                                                             \
    typedef metal::packed_vec<T, N> packed_##T##N;                                             \
    static_assert(sizeof(T##N) == (N + N % 2) * sizeof(T), "vectors have Metal's sizes");      \
    namespace metal {                                                                          \
    using ::packed_##T##N, ::T##N;                                                             \
    }
#define SOFTMETAL_NAME_SIMD_VECTOR(T, N)                                                       \
    SOFTMETAL_NAME_VECTOR(T, N)                                                                \
    typedef T##N simd_##T##N, vector_##T##N;                                                   \
    namespace simd {                                                                           \
    using ::packed_##T##N, ::T##N;                                                             \
    }
#define SOFTMETAL_NAME_VECTORS(NAME, T) NAME(T, 2) NAME(T, 3) NAME(T, 4)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_VECTOR, bool)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_VECTOR, bfloat)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, char)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, uchar)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, short)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, ushort)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, int)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, uint)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, long)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, ulong)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, half)
SOFTMETAL_NAME_VECTORS(SOFTMETAL_NAME_SIMD_VECTOR, float)
#undef SOFTMETAL_NAME_VECTORS
#undef SOFTMETAL_NAME_SIMD_VECTOR
#undef SOFTMETAL_NAME_VECTOR
static_assert(sizeof(packed_char3) == 3 && sizeof(packed_float3) == 12,
              "packed ones have theirs");

/* Where a source forbids to contract: each operation rounds. */
namespace softmetal {
namespace exact {
#define SOFTMETAL_EXACT_TERM(c, op, T) T(a.c op b.c)
#define SOFTMETAL_EXACT_OPERATOR(op, T, N)                                                     \
    SOFTMETAL_INLINE constexpr T##N operator op(T##N a, T##N b) {                              \
        _Pragma("clang fp contract(off)") return T##N(                                         \
            SOFTMETAL_EACH_##N(SOFTMETAL_EXACT_TERM, op, T));                                  \
    }                                                                                          \
    SOFTMETAL_INLINE constexpr T##N &operator op## = (T##N & a, T##N b) { return a = a op b; } \
    SOFTMETAL_INLINE constexpr packed_##T##N &operator op## = (packed_##T##N & a, T##N b) {    \
        return a = T##N(a) op b;                                                               \
    }
/* A bfloat beside a float is a float, and the product of the two is not rounded by itself. */
#define SOFTMETAL_EXACT_BFLOAT(op, A, B)                                                       \
    SOFTMETAL_INLINE constexpr float operator op(A a, B b) {                                   \
        _Pragma("clang fp contract(off)") return float(a) op float(b);                         \
    }
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, float, 2)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, float, 3)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, float, 4)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, half, 2)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, half, 3)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_OPERATOR, half, 4)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_BFLOAT, bfloat, float)
SOFTMETAL_CONTRACTED(SOFTMETAL_EXACT_BFLOAT, float, bfloat)
#undef SOFTMETAL_EXACT_BFLOAT
#undef SOFTMETAL_EXACT_OPERATOR
#undef SOFTMETAL_EXACT_TERM
} // namespace exact
} // namespace softmetal

namespace metal {
template <class T> inline constexpr bool is_vector_v =
    softmetal::shape<remove_cv_t<T>>::is_vector;
template <class T> struct is_vector : bool_constant<is_vector_v<T>> {};
template <class T> struct vec_elements
    : integral_constant<int, softmetal::shape<remove_cv_t<T>>::count> {};
template <class T> inline constexpr int vec_elements_v = vec_elements<T>::value;
template <class T> struct make_scalar : type_identity<softmetal::element_of<remove_cv_t<T>>> {};
template <class T> using make_scalar_t = typename make_scalar<T>::type;
} // namespace metal

/* The same bytes as another type. */
template <class To, class From> SOFTMETAL_INLINE constexpr To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs a type of the same size");
    return __builtin_bit_cast(To, from);
}

#endif /* SOFTMETAL_VECTORS_H */
