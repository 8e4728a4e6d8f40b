/* softmetal_limits.h: numeric_limits, and the constants of metal_limits and metal_math.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a constant.
 */
#ifndef SOFTMETAL_LIMITS_H
#define SOFTMETAL_LIMITS_H

#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-SCHAR_MAX - 1)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-SHRT_MAX - 1)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 0x7fffffffffffffffl
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 0xffffffffffffffffull

/* FLT_DIG, HALF_DIG, BFLT_DIG and their kind; MAX, MIN and EPSILON are of the type. */
#define SOFTMETAL_FLOAT_CONSTANTS(T, NAME, dig, decimal_dig, mant_dig, min_10_exp, max_10_exp, \
                                  min_exp, max_exp, largest, smallest, epsilon)                \
    constexpr int NAME##_DIG = dig, NAME##_DECIMAL_DIG = decimal_dig,                          \
                  NAME##_MANT_DIG = mant_dig, NAME##_MIN_10_EXP = min_10_exp,                  \
                  NAME##_MAX_10_EXP = max_10_exp, NAME##_MIN_EXP = min_exp,                    \
                  NAME##_MAX_EXP = max_exp, NAME##_RADIX = 2;                                  \
    constexpr T NAME##_MAX = T(largest), NAME##_MIN = T(smallest), NAME##_EPSILON = T(epsilon);
SOFTMETAL_FLOAT_CONSTANTS(float, FLT, 6, 9, 24, -37, 38, -125, 128, 0x1.fffffep127f,
                          0x1.0p-126f, 0x1.0p-23f)
SOFTMETAL_FLOAT_CONSTANTS(half, HALF, 3, 5, 11, -4, 4, -13, 16, 0x1.ffcp15f, 0x1.0p-14f,
                          0x1.0p-10f)
SOFTMETAL_FLOAT_CONSTANTS(bfloat, BFLT, 2, 4, 8, -37, 38, -125, 128, 0x1.fep127f, 0x1.0p-126f,
                          0x1.0p-7f)
#undef SOFTMETAL_FLOAT_CONSTANTS

#define MAXFLOAT FLT_MAX
#define MAXHALF HALF_MAX
#define MAXBFLOAT BFLT_MAX
#define HUGE_VALF __builtin_inff()
#define HUGE_VALH half(__builtin_inff())
#define HUGE_VALBF bfloat(__builtin_inff())
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FP_ILOGB0 INT_MIN
#define FP_ILOGBNAN INT_MIN

/* M_E_F, M_E_H, M_E_BF: of each type. */
#define SOFTMETAL_CONSTANTS(name, value)                                                       \
    constexpr float M_##name##_F = value;                                                      \
    constexpr half M_##name##_H = half(M_##name##_F);                                          \
    constexpr bfloat M_##name##_BF = bfloat(M_##name##_F);
SOFTMETAL_CONSTANTS(E, 2.71828182845904523536028747135266250f)
SOFTMETAL_CONSTANTS(LOG2E, 1.44269504088896340735992468100189214f)
SOFTMETAL_CONSTANTS(LOG10E, 0.434294481903251827651128918916605082f)
SOFTMETAL_CONSTANTS(LN2, 0.693147180559945309417232121458176568f)
SOFTMETAL_CONSTANTS(LN10, 2.30258509299404568401799145468436421f)
SOFTMETAL_CONSTANTS(PI, 3.14159265358979323846264338327950288f)
SOFTMETAL_CONSTANTS(PI_2, 1.57079632679489661923132169163975144f)
SOFTMETAL_CONSTANTS(PI_4, 0.785398163397448309615660845819875721f)
SOFTMETAL_CONSTANTS(1_PI, 0.318309886183790671537767526745028724f)
SOFTMETAL_CONSTANTS(2_PI, 0.636619772367581343075535053490057448f)
SOFTMETAL_CONSTANTS(2_SQRTPI, 1.12837916709551257389615890312154517f)
SOFTMETAL_CONSTANTS(SQRT2, 1.41421356237309504880168872420969808f)
SOFTMETAL_CONSTANTS(SQRT1_2, 0.707106781186547524400844362104849039f)
#undef SOFTMETAL_CONSTANTS

namespace metal {
/* For types without limits.  MLX specialises the second for its own types. */
template <class T, class = void> struct _numeric_limits_impl {
    static constexpr bool is_specialized = false;
    static constexpr T min() { return T(); }
    static constexpr T max() { return T(); }
    static constexpr T lowest() { return T(); }
};
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
template <class T> struct numeric_limits<const T> : numeric_limits<T> {};
template <class T> struct numeric_limits<volatile T> : numeric_limits<T> {};

enum float_round_style { round_indeterminate = -1, round_toward_zero, round_to_nearest };

/* PREFIX names the constants above. */
#define SOFTMETAL_FLOAT_LIMITS(T, PREFIX)                                                      \
    template <> struct _numeric_limits_impl<T> {                                               \
        static constexpr bool is_specialized = true, is_signed = true, is_integer = false,     \
                              is_exact = false, has_infinity = true, has_quiet_NaN = true,     \
                              has_signaling_NaN = true, is_iec559 = true, is_bounded = true,   \
                              is_modulo = false, traps = false;                                \
        static constexpr int digits = PREFIX##_MANT_DIG, digits10 = PREFIX##_DIG,              \
                             max_digits10 = PREFIX##_DECIMAL_DIG, radix = 2,                   \
                             min_exponent = PREFIX##_MIN_EXP, max_exponent = PREFIX##_MAX_EXP, \
                             min_exponent10 = PREFIX##_MIN_10_EXP,                             \
                             max_exponent10 = PREFIX##_MAX_10_EXP;                             \
        static constexpr float_round_style round_style = round_to_nearest;                     \
        SOFTMETAL_INLINE static constexpr T min() { return PREFIX##_MIN; }                     \
        SOFTMETAL_INLINE static constexpr T max() { return PREFIX##_MAX; }                     \
        SOFTMETAL_INLINE static constexpr T lowest() { return -PREFIX##_MAX; }                 \
        SOFTMETAL_INLINE static constexpr T epsilon() { return PREFIX##_EPSILON; }             \
        SOFTMETAL_INLINE static constexpr T round_error() { return T(0.5f); }                  \
        SOFTMETAL_INLINE static constexpr T infinity() { return T(__builtin_inff()); }         \
        SOFTMETAL_INLINE static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }      \
        SOFTMETAL_INLINE static constexpr T signaling_NaN() { return T(__builtin_nanf("")); }  \
        SOFTMETAL_INLINE static constexpr T denorm_min() {                                     \
            return T(float(PREFIX##_MIN) * float(PREFIX##_EPSILON));                           \
        }                                                                                      \
    };
SOFTMETAL_FLOAT_LIMITS(float, FLT)
SOFTMETAL_FLOAT_LIMITS(half, HALF)
SOFTMETAL_FLOAT_LIMITS(bfloat, BFLT)
#undef SOFTMETAL_FLOAT_LIMITS

template <class T> struct _numeric_limits_impl<T, enable_if_t<__is_integral(T)>> {
    static constexpr bool is_specialized = true, is_signed = __is_signed(T), is_integer = true,
                          is_exact = true, has_infinity = false, has_quiet_NaN = false,
                          has_signaling_NaN = false, is_iec559 = false, is_bounded = true,
                          is_modulo = !is_signed, traps = false;
    static constexpr int digits = __is_same(T, bool) ? 1 : int(8 * sizeof(T)) - is_signed,
                         digits10 = digits * 30103 / 100000, max_digits10 = 0, radix = 2,
                         min_exponent = 0, max_exponent = 0, min_exponent10 = 0,
                         max_exponent10 = 0;
    static constexpr float_round_style round_style = round_toward_zero;
    SOFTMETAL_INLINE static constexpr T max() { return T(~0ull >> (64 - digits)); }
    SOFTMETAL_INLINE static constexpr T min() { return is_signed ? T(~max()) : T(0); }
    SOFTMETAL_INLINE static constexpr T lowest() { return min(); }
    SOFTMETAL_INLINE static constexpr T epsilon() { return T(0); }
    SOFTMETAL_INLINE static constexpr T round_error() { return T(0); }
    SOFTMETAL_INLINE static constexpr T infinity() { return T(0); }
    SOFTMETAL_INLINE static constexpr T quiet_NaN() { return T(0); }
    SOFTMETAL_INLINE static constexpr T signaling_NaN() { return T(0); }
    SOFTMETAL_INLINE static constexpr T denorm_min() { return T(0); }
};
} // namespace metal

#endif /* SOFTMETAL_LIMITS_H */
