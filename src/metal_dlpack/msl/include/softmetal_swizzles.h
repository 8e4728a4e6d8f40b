/* softmetal_swizzles.h: SOFTMETAL_SWIZZLES_2, _3 and _4, the swizzles of vectors of 2, 3 and 4.
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

/* The colour's name of one component. */
#define SOFTMETAL_COLOUR(A, colour)                                                            \
    SOFTMETAL_INLINE constexpr T get_##A() const { return A; }                                 \
    SOFTMETAL_INLINE constexpr void set_##A(T v) { A = v; }                                    \
    __declspec(property(get = get_##A, put = set_##A)) T colour;

/* Letters come last first, each with its colour: SWIZZLE2(y, g, x, r) makes xy and rg.
 * Components may be written at once unless two are one. */
#define SOFTMETAL_SWIZZLE2(B, B_, A, A_)                                                       \
    SOFTMETAL_INLINE constexpr vec<T, 2> get_##A##B() const { return vec<T, 2>(A, B); }        \
    SOFTMETAL_INLINE constexpr void set_##A##B(vec<T, 2> v) {                                  \
        static_assert(sizeof(T) && !softmetal::repeats(#A #B),                                 \
                      "a component is written twice");                                         \
        A = v.x, B = v.y;                                                                      \
    }                                                                                          \
    __declspec(property(get = get_##A##B, put = set_##A##B)) vec<T, 2> A##B;                   \
    __declspec(property(get = get_##A##B, put = set_##A##B)) vec<T, 2> A_##B_;
#define SOFTMETAL_SWIZZLE3(C, C_, B, B_, A, A_)                                                \
    SOFTMETAL_INLINE constexpr vec<T, 3> get_##A##B##C() const { return vec<T, 3>(A, B, C); }  \
    SOFTMETAL_INLINE constexpr void set_##A##B##C(vec<T, 3> v) {                               \
        static_assert(sizeof(T) && !softmetal::repeats(#A #B #C),                              \
                      "a component is written twice");                                         \
        A = v.x, B = v.y, C = v.z;                                                             \
    }                                                                                          \
    __declspec(property(get = get_##A##B##C, put = set_##A##B##C)) vec<T, 3> A##B##C;          \
    __declspec(property(get = get_##A##B##C, put = set_##A##B##C)) vec<T, 3> A_##B_##C_;
#define SOFTMETAL_SWIZZLE4(D, D_, C, C_, B, B_, A, A_)                                         \
    SOFTMETAL_INLINE constexpr vec<T, 4> get_##A##B##C##D() const {                            \
        return vec<T, 4>(A, B, C, D);                                                          \
    }                                                                                          \
    SOFTMETAL_INLINE constexpr void set_##A##B##C##D(vec<T, 4> v) {                            \
        static_assert(sizeof(T) && !softmetal::repeats(#A #B #C #D),                           \
                      "a component is written twice");                                         \
        A = v.x, B = v.y, C = v.z, D = v.w;                                                    \
    }                                                                                          \
    __declspec(property(get = get_##A##B##C##D, put = set_##A##B##C##D)) vec<T, 4> A##B##C##D; \
    __declspec(property(get = get_##A##B##C##D, put = set_##A##B##C##D)) vec<T, 4>             \
        A_##B_##C_##D_;

#define SOFTMETAL_SWIZZLES_2                                                                   \
    SOFTMETAL_COLOUR(x, r)                                                                     \
    SOFTMETAL_COLOUR(y, g)                                                                     \
    SOFTMETAL_FROM_2(x, r)                                                                     \
    SOFTMETAL_FROM_2(y, g)
#define SOFTMETAL_SWIZZLES_3                                                                   \
    SOFTMETAL_COLOUR(x, r)                                                                     \
    SOFTMETAL_COLOUR(y, g)                                                                     \
    SOFTMETAL_COLOUR(z, b)                                                                     \
    SOFTMETAL_FROM_3(x, r)                                                                     \
    SOFTMETAL_FROM_3(y, g)                                                                     \
    SOFTMETAL_FROM_3(z, b)
#define SOFTMETAL_SWIZZLES_4                                                                   \
    SOFTMETAL_COLOUR(x, r)                                                                     \
    SOFTMETAL_COLOUR(y, g)                                                                     \
    SOFTMETAL_COLOUR(z, b)                                                                     \
    SOFTMETAL_COLOUR(w, a)                                                                     \
    SOFTMETAL_FROM_4(x, r)                                                                     \
    SOFTMETAL_FROM_4(y, g)                                                                     \
    SOFTMETAL_FROM_4(z, b)                                                                     \
    SOFTMETAL_FROM_4(w, a)

/* All that begin with one letter of a vector of 2. */
#define SOFTMETAL_FROM_2(x0, r0)                                                               \
    SOFTMETAL_FROM2_2(x, r, x0, r0)                                                            \
    SOFTMETAL_FROM2_2(y, g, x0, r0)
#define SOFTMETAL_FROM2_2(x1, r1, x0, r0)                                                      \
    SOFTMETAL_SWIZZLE2(x1, r1, x0, r0)                                                         \
    SOFTMETAL_FROM3_2(x, r, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_2(y, g, x1, r1, x0, r0)
#define SOFTMETAL_FROM3_2(x2, r2, x1, r1, x0, r0)                                              \
    SOFTMETAL_SWIZZLE3(x2, r2, x1, r1, x0, r0)                                                 \
    SOFTMETAL_SWIZZLE4(x, r, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(y, g, x2, r2, x1, r1, x0, r0)

#define SOFTMETAL_FROM_3(x0, r0)                                                               \
    SOFTMETAL_FROM2_3(x, r, x0, r0)                                                            \
    SOFTMETAL_FROM2_3(y, g, x0, r0)                                                            \
    SOFTMETAL_FROM2_3(z, b, x0, r0)
#define SOFTMETAL_FROM2_3(x1, r1, x0, r0)                                                      \
    SOFTMETAL_SWIZZLE2(x1, r1, x0, r0)                                                         \
    SOFTMETAL_FROM3_3(x, r, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_3(y, g, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_3(z, b, x1, r1, x0, r0)
#define SOFTMETAL_FROM3_3(x2, r2, x1, r1, x0, r0)                                              \
    SOFTMETAL_SWIZZLE3(x2, r2, x1, r1, x0, r0)                                                 \
    SOFTMETAL_SWIZZLE4(x, r, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(y, g, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(z, b, x2, r2, x1, r1, x0, r0)

#define SOFTMETAL_FROM_4(x0, r0)                                                               \
    SOFTMETAL_FROM2_4(x, r, x0, r0)                                                            \
    SOFTMETAL_FROM2_4(y, g, x0, r0)                                                            \
    SOFTMETAL_FROM2_4(z, b, x0, r0)                                                            \
    SOFTMETAL_FROM2_4(w, a, x0, r0)
#define SOFTMETAL_FROM2_4(x1, r1, x0, r0)                                                      \
    SOFTMETAL_SWIZZLE2(x1, r1, x0, r0)                                                         \
    SOFTMETAL_FROM3_4(x, r, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_4(y, g, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_4(z, b, x1, r1, x0, r0)                                                    \
    SOFTMETAL_FROM3_4(w, a, x1, r1, x0, r0)
#define SOFTMETAL_FROM3_4(x2, r2, x1, r1, x0, r0)                                              \
    SOFTMETAL_SWIZZLE3(x2, r2, x1, r1, x0, r0)                                                 \
    SOFTMETAL_SWIZZLE4(x, r, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(y, g, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(z, b, x2, r2, x1, r1, x0, r0)                                           \
    SOFTMETAL_SWIZZLE4(w, a, x2, r2, x1, r1, x0, r0)

namespace softmetal {
SOFTMETAL_INLINE constexpr bool repeats(const char *letters) {
    for (const char *a = letters; *a; a++)
        for (const char *b = a + 1; *b; b++)
            if (*a == *b) return true;
    return false;
}
} // namespace softmetal

#endif /* SOFTMETAL_SWIZZLES_H */
