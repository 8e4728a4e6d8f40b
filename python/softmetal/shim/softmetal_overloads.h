/* softmetal_overloads.h: macros that make a function of scalars one of all of Metal's types.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a type or text.
 *
 * A function is written for its scalars.  These macros add vectors, component by component, and
 * the mixtures that Metal's own overloads accept by conversion: a scalar beside a vector, a
 * packed vector, an integer where a float is meant.
 */
#ifndef SOFTMETAL_OVERLOADS_H
#define SOFTMETAL_OVERLOADS_H

#include "softmetal_vectors.h"

namespace softmetal {
template <class T> struct vector_of : metal::type_identity<T> {};
template <class T, int N> struct vector_of<packed_vec<T, N>> : metal::type_identity<vec<T, N>> {
};

/* The type that two arguments meet in: a vector before a scalar, a float before an integer. */
template <class A, class B> SOFTMETAL_INLINE constexpr auto meet() {
    using metal::conditional_t, metal::type_identity;
    if constexpr (__is_same(A, B))
        return type_identity<A>();
    else if constexpr (shape<A>::is_vector)
        return type_identity<A>();
    else if constexpr (shape<B>::is_vector)
        return type_identity<B>();
    else if constexpr (__is_integral(A) && __is_integral(B))
        return type_identity<decltype(A() + B())>();
    else if constexpr (__is_integral(A))
        return type_identity<B>();
    else if constexpr (__is_integral(B))
        return type_identity<A>();
    else
        return type_identity<float>();
}
template <class A, class... B> struct meeting : vector_of<A> {};
template <class A, class B, class... C> struct meeting<A, B, C...>
    : meeting<typename decltype(meet<typename vector_of<A>::type,
                                     typename vector_of<B>::type>())::type,
              C...> {};
template <class... A> using met = typename meeting<A...>::type;

template <class T> inline constexpr bool is_number = is_arithmetic_v<T> || shape<T>::is_vector;
template <class T, class... A> inline constexpr bool are_all = (__is_same(T, A) && ...);

/* The type of a call that needs a conversion: `mixed` where integers are welcome,
 * `mixed_floats` where they become floats. */
template <class... A> using mixed =
    enable_if_t<(is_number<A> && ...) && !are_all<met<A...>, A...>, met<A...>>;
template <class... A> using floated =
    metal::conditional_t<__is_integral(met<A...>), float, met<A...>>;
template <class... A> using mixed_floats =
    enable_if_t<(is_number<A> && ...) && !are_all<floated<A...>, A...>, floated<A...>>;

template <class T> using if_integral = enable_if_t<__is_integral(T)>;
template <class T> using if_floating = enable_if_t<is_floating<T>>;
/* The elements of vectors that a function of these takes. */
template <class T> using of_mixed = void;
template <class T> using of_mixed_floats = if_floating<T>;
} // namespace softmetal

/* A function has N arguments of one type: a, b and d. */
#define SOFTMETAL_TAKE1(...) __VA_ARGS__ a
#define SOFTMETAL_TAKE2(...) __VA_ARGS__ a, __VA_ARGS__ b
#define SOFTMETAL_TAKE3(...) __VA_ARGS__ a, __VA_ARGS__ b, __VA_ARGS__ d
#define SOFTMETAL_CALL1(c, name) name(a.c)
#define SOFTMETAL_CALL2(c, name) name(a.c, b.c)
#define SOFTMETAL_CALL3(c, name) name(a.c, b.c, d.c)
#define SOFTMETAL_AS1(T) T(a)
#define SOFTMETAL_AS2(T) T(a), T(b)
#define SOFTMETAL_AS3(T) T(a), T(b), T(d)

/* From scalars to vectors; R is the element of the result, made of T. */
#define SOFTMETAL_OVER_VECTOR(N, name, R, size, OF)                                            \
    template <class T, class = softmetal::OF<T>>                                               \
    SOFTMETAL_INLINE constexpr vec<R, size> name(SOFTMETAL_TAKE##N(vec<T, size>)) {            \
        return vec<R, size>(SOFTMETAL_EACH_##size(SOFTMETAL_CALL##N, name));                   \
    }
#define SOFTMETAL_OVER_VECTORS(N, name, R, OF)                                                 \
    SOFTMETAL_OVER_VECTOR(N, name, R, 2, OF)                                                   \
    SOFTMETAL_OVER_VECTOR(N, name, R, 3, OF)                                                   \
    SOFTMETAL_OVER_VECTOR(N, name, R, 4, OF)

/* To vectors, and to what converts to one type. */
#define SOFTMETAL_VECTORS(N, name, R, MIXED)                                                   \
    SOFTMETAL_OVER_VECTORS(N, name, R, of_##MIXED)                                             \
    template <class... A, class = softmetal::enable_if_t<sizeof...(A) == N>,                   \
              class M = softmetal::MIXED<A...>>                                                \
    SOFTMETAL_INLINE constexpr auto name(A... a) {                                             \
        return name(M(a)...);                                                                  \
    }

/* A function of floats, from an expression in a, b and d; half and bfloat go through float. */
#define SOFTMETAL_SCALARS(N, name, ...)                                                        \
    SOFTMETAL_INLINE float name(SOFTMETAL_TAKE##N(float)) { return __VA_ARGS__; }              \
    SOFTMETAL_INLINE half name(SOFTMETAL_TAKE##N(half)) {                                      \
        return half(name(SOFTMETAL_AS##N(float)));                                             \
    }                                                                                          \
    SOFTMETAL_INLINE bfloat name(SOFTMETAL_TAKE##N(bfloat)) {                                  \
        return bfloat(name(SOFTMETAL_AS##N(float)));                                           \
    }

/* A function of integers, all of one type T. */
#define SOFTMETAL_WHOLES(N, name, ...)                                                         \
    template <class T, class = softmetal::if_integral<T>>                                      \
    SOFTMETAL_INLINE constexpr T name(SOFTMETAL_TAKE##N(T)) {                                  \
        return T(__VA_ARGS__);                                                                 \
    }

/* There is one accuracy for functions of metal::, the CPU's. */
#define SOFTMETAL_ACCURACIES(...)                                                              \
    namespace fast {                                                                           \
    using __VA_ARGS__;                                                                         \
    }                                                                                          \
    namespace precise {                                                                        \
    using __VA_ARGS__;                                                                         \
    }

/* All of it: for floats, for integers, for both. */
#define SOFTMETAL_FLOATS(N, name, ...)                                                         \
    SOFTMETAL_SCALARS(N, name, __VA_ARGS__)                                                    \
    SOFTMETAL_VECTORS(N, name, T, mixed_floats)                                                \
    SOFTMETAL_ACCURACIES(metal::name)
#define SOFTMETAL_INTEGERS(N, name, ...)                                                       \
    SOFTMETAL_WHOLES(N, name, __VA_ARGS__)                                                     \
    SOFTMETAL_VECTORS(N, name, T, mixed)
#define SOFTMETAL_NUMBERS(N, name, of_floats, ...)                                             \
    SOFTMETAL_SCALARS(N, name, of_floats)                                                      \
    SOFTMETAL_WHOLES(N, name, __VA_ARGS__)                                                     \
    SOFTMETAL_VECTORS(N, name, T, mixed)                                                       \
    SOFTMETAL_ACCURACIES(metal::name)

#endif /* SOFTMETAL_OVERLOADS_H */
