/* softmetal_bfloat.h: bfloat, the upper half of a float.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: bfloat is a value.
 *
 * A class, since clang refuses a cast between its own __bf16 and _Float16, and calls functions
 * for its conversions that old libraries lack.  Arithmetic is float's, rounded to nearest even
 * after each operation; with a float or a half the result is float, with an integer it is
 * bfloat.  As in Metal it becomes a float by itself, an integer becomes a bfloat by itself, and
 * a float only by a cast.
 */
#ifndef SOFTMETAL_BFLOAT_H
#define SOFTMETAL_BFLOAT_H

namespace softmetal {
template <class S> using if_class_of_number =
    metal::enable_if_t<metal::is_class_v<S> && metal::is_convertible_v<S, float> &&
                           !metal::is_same_v<S, bfloat>,
                       int>;
} // namespace softmetal

struct bfloat {
    ushort bits;

    bfloat() = default;
    template <class S, metal::enable_if_t<__is_integral(S), int> = 0>
    SOFTMETAL_INLINE constexpr bfloat(S value) : bits(round(float(value))) {}
    template <class S, metal::enable_if_t<softmetal::is_floating<S>, int> = 0>
    SOFTMETAL_INLINE explicit constexpr bfloat(S value) : bits(round(float(value))) {}
    /* A class that is a number, such as a mask that converts to bool.  It can be assigned; were the
     * constructor implicit, the sum of two such classes could be one of bfloats. */
    template <class S, softmetal::if_class_of_number<S> = 0>
    SOFTMETAL_INLINE explicit constexpr bfloat(const S &value) : bits(round(float(value))) {}
    template <class S, softmetal::if_class_of_number<S> = 0>
    SOFTMETAL_INLINE constexpr bfloat &operator=(const S &value) {
        return *this = bfloat(value);
    }
    SOFTMETAL_INLINE constexpr operator float() const {
        return __builtin_bit_cast(float, uint(bits) << 16);
    }
    static SOFTMETAL_INLINE constexpr bfloat of_bits(ushort bits) {
        bfloat made = bfloat();
        made.bits = bits;
        return made;
    }
    SOFTMETAL_INLINE constexpr bfloat operator-() const { return of_bits(bits ^ 0x8000); }
    SOFTMETAL_INLINE constexpr bfloat operator+() const { return *this; }
    SOFTMETAL_INLINE constexpr bfloat &operator++() { return *this = bfloat(float(*this) + 1); }
    SOFTMETAL_INLINE constexpr bfloat &operator--() { return *this = bfloat(float(*this) - 1); }
    SOFTMETAL_INLINE constexpr bfloat operator++(int) {
        bfloat before = *this;
        ++*this;
        return before;
    }
    SOFTMETAL_INLINE constexpr bfloat operator--(int) {
        bfloat before = *this;
        --*this;
        return before;
    }

  private:
    /* To nearest, ties to even; a NaN stays one and becomes quiet. */
    static SOFTMETAL_INLINE constexpr ushort round(float value) {
        uint from = __builtin_bit_cast(uint, value);
        uint rounded = (from + 0x7fff + (from >> 16 & 1)) >> 16;
        uint quiet = from >> 16 | 0x40;
        return ushort((from & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
    }
};
static_assert(sizeof(bfloat) == 2 && alignof(bfloat) == 2, "bfloat has 16 bits");

namespace softmetal {
/* What a bfloat and an S make together. */
template <class S> using with_bfloat =
    metal::conditional_t<metal::is_same_v<S, float> || metal::is_same_v<S, half>, float,
                         bfloat>;
template <class S> using arithmetic_beside_bfloat =
    metal::enable_if_t<metal::is_arithmetic_v<S> && !metal::is_same_v<S, bfloat>>;

/* An integer that a conditional may choose; the translator writes it.  It converts to its own type,
 * after which C++'s rules hold, and to what those do not know: half, bfloat, vectors, pointers. */
template <class T, class Own> using if_literal_becomes =
    metal::enable_if_t<metal::is_same_v<T, Own> || metal::is_same_v<T, half> ||
                           metal::is_class_v<T> || metal::is_pointer_v<T>,
                       int>;
template <auto value> struct literal {
    template <class T, if_literal_becomes<T, metal::remove_cv_t<decltype(value)>> = 0>
    SOFTMETAL_INLINE constexpr operator T() const {
        return T(value);
    }
};
} // namespace softmetal

/* Makes an Own from two bfloats, a Mixed from a bfloat and an S. */
#define SOFTMETAL_BFLOAT_OPERATOR(op, Own, Mixed)                                              \
    SOFTMETAL_INLINE constexpr Own operator op(bfloat a, bfloat b) {                           \
        return Own(float(a) op float(b));                                                      \
    }                                                                                          \
    template <class S, class = softmetal::arithmetic_beside_bfloat<S>>                         \
    SOFTMETAL_INLINE constexpr Mixed operator op(bfloat a, S b) {                              \
        return Mixed(float(a) op float(b));                                                    \
    }                                                                                          \
    template <class S, class = softmetal::arithmetic_beside_bfloat<S>>                         \
    SOFTMETAL_INLINE constexpr Mixed operator op(S a, bfloat b) {                              \
        return Mixed(float(a) op float(b));                                                    \
    }
#define SOFTMETAL_BFLOAT_ARITHMETIC(op)                                                        \
    SOFTMETAL_BFLOAT_OPERATOR(op, bfloat, softmetal::with_bfloat<S>)                           \
    template <class S, class = metal::enable_if_t<metal::is_arithmetic_v<S>>>                  \
    SOFTMETAL_INLINE constexpr bfloat &operator op## = (bfloat & a, S b) {                     \
        return a = bfloat(float(a) op float(b));                                               \
    }                                                                                          \
    template <class S, class = softmetal::arithmetic_beside_bfloat<S>>                         \
    SOFTMETAL_INLINE constexpr S &operator op## = (S & a, bfloat b) {                          \
        return a = S(a op float(b));                                                           \
    }
SOFTMETAL_BFLOAT_ARITHMETIC(+)
SOFTMETAL_BFLOAT_ARITHMETIC(-)
SOFTMETAL_BFLOAT_ARITHMETIC(*)
SOFTMETAL_BFLOAT_ARITHMETIC(/)
SOFTMETAL_BFLOAT_OPERATOR(==, bool, bool)
SOFTMETAL_BFLOAT_OPERATOR(!=, bool, bool)
SOFTMETAL_BFLOAT_OPERATOR(<, bool, bool)
SOFTMETAL_BFLOAT_OPERATOR(>, bool, bool)
SOFTMETAL_BFLOAT_OPERATOR(<=, bool, bool)
SOFTMETAL_BFLOAT_OPERATOR(>=, bool, bool)
#undef SOFTMETAL_BFLOAT_ARITHMETIC
#undef SOFTMETAL_BFLOAT_OPERATOR

#endif /* SOFTMETAL_BFLOAT_H */
