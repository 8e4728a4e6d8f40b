/* softmetal_swizzles.h: SOFTMETAL_SWIZZLES(N), the swizzles of a vector of N.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is text.
 *
 * A swizzle is a property: `v.zx` calls get_zx(), `v.zx = w` calls set_zx(w), so that its type
 * is an ordinary vector and templates deduce it.  Each has two names, of xyzw and of rgba.
 * Macros walk over the letters, one for each place, as no macro can expand itself.
 */
#ifndef SOFTMETAL_SWIZZLES_H
#define SOFTMETAL_SWIZZLES_H

#include "softmetal_types.h"

/* The colour's name of one component. */
#define SOFTMETAL_COLOUR(A, colour)                                                            \
    SOFTMETAL_INLINE constexpr T get_##A() const { return A; }                                 \
    SOFTMETAL_INLINE constexpr void set_##A(T v) { A = v; }                                    \
    __declspec(property(get = get_##A, put = set_##A)) T colour;

/* The name, its colour's name, the letters in parentheses, and what is written.  Components may
 * be written at once unless two are one. */
#define SOFTMETAL_SWIZZLE(N, name, colour, letters, ...)                                       \
    SOFTMETAL_INLINE constexpr vec<T, N> get_##name() const { return vec<T, N> letters; }      \
    SOFTMETAL_INLINE constexpr void set_##name(vec<T, N> v) {                                  \
        static_assert(sizeof(T) && !softmetal::repeats(#name),                                 \
                      "a component is written twice");                                         \
        __VA_ARGS__;                                                                           \
    }                                                                                          \
    __declspec(property(get = get_##name, put = set_##name)) vec<T, N> name;                   \
    __declspec(property(get = get_##name, put = set_##name)) vec<T, N> colour;
/* Letters come last first, each with its colour: SWIZZLE2(y, g, x, r) makes xy and rg. */
#define SOFTMETAL_SWIZZLE2(B, B_, A, A_)                                                       \
    SOFTMETAL_SWIZZLE(2, A##B, A_##B_, (A, B), A = v.x, B = v.y)
#define SOFTMETAL_SWIZZLE3(C, C_, B, B_, A, A_)                                                \
    SOFTMETAL_SWIZZLE(3, A##B##C, A_##B_##C_, (A, B, C), A = v.x, B = v.y, C = v.z)
#define SOFTMETAL_SWIZZLE4(D, D_, C, C_, B, B_, A, A_)                                         \
    SOFTMETAL_SWIZZLE(4, A##B##C##D, A_##B_##C_##D_, (A, B, C, D), A = v.x, B = v.y, C = v.z,  \
                      D = v.w)

/* M(letter, colour, more) for each letter of a vector of 2, 3 or 4; a list for each place. */
#define SOFTMETAL_FIRST_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define SOFTMETAL_FIRST_3(M, ...) SOFTMETAL_FIRST_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define SOFTMETAL_FIRST_4(M, ...) SOFTMETAL_FIRST_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define SOFTMETAL_SECOND_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define SOFTMETAL_SECOND_3(M, ...) SOFTMETAL_SECOND_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define SOFTMETAL_SECOND_4(M, ...) SOFTMETAL_SECOND_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define SOFTMETAL_THIRD_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define SOFTMETAL_THIRD_3(M, ...) SOFTMETAL_THIRD_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define SOFTMETAL_THIRD_4(M, ...) SOFTMETAL_THIRD_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)
#define SOFTMETAL_FOURTH_2(M, ...) M(x, r, __VA_ARGS__) M(y, g, __VA_ARGS__)
#define SOFTMETAL_FOURTH_3(M, ...) SOFTMETAL_FOURTH_2(M, __VA_ARGS__) M(z, b, __VA_ARGS__)
#define SOFTMETAL_FOURTH_4(M, ...) SOFTMETAL_FOURTH_3(M, __VA_ARGS__) M(w, a, __VA_ARGS__)

/* All swizzles of a vector of N that begin with the letters given. */
#define SOFTMETAL_FROM1(x0, r0, N)                                                             \
    SOFTMETAL_COLOUR(x0, r0)                                                                   \
    SOFTMETAL_SECOND_##N(SOFTMETAL_FROM2, N, x0, r0)
#define SOFTMETAL_FROM2(x1, r1, N, ...)                                                        \
    SOFTMETAL_SWIZZLE2(x1, r1, __VA_ARGS__)                                                    \
    SOFTMETAL_THIRD_##N(SOFTMETAL_FROM3, N, x1, r1, __VA_ARGS__)
#define SOFTMETAL_FROM3(x2, r2, N, ...)                                                        \
    SOFTMETAL_SWIZZLE3(x2, r2, __VA_ARGS__)                                                    \
    SOFTMETAL_FOURTH_##N(SOFTMETAL_SWIZZLE4, x2, r2, __VA_ARGS__)
#define SOFTMETAL_SWIZZLES(N) SOFTMETAL_FIRST_##N(SOFTMETAL_FROM1, N)

namespace softmetal {
SOFTMETAL_INLINE constexpr bool repeats(const char *letters) {
    for (const char *a = letters; *a; a++)
        for (const char *b = a + 1; *b; b++)
            if (*a == *b) return true;
    return false;
}
} // namespace softmetal

#endif /* SOFTMETAL_SWIZZLES_H */
