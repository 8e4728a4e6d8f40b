/* dtype_float.c: small floats as doubles; see dtype.h. */
#include "arithmetic/dtype.h"

#include <math.h>
#include <stddef.h>

#include <dlpack/dlpack.h>

/* Which codes are infinities and NaNs. */
typedef enum {
    TOP_IS_INFINITE, /* as in IEEE 754: the top exponent is infinity and NaN */
    TOP_IS_NAN,      /* "fn": only all ones is NaN, and there is no infinity */
    ZERO_IS_NAN,     /* "fnuz": what would be -0 is NaN */
    ALL_ARE_NUMBERS, /* 4 and 6 bits: neither infinity nor NaN */
} float_specials;

typedef struct float_format {
    uint8_t code; /* DLDataTypeCode */
    int exponent_bits, mantissa_bits, bias;
    float_specials specials;
} float_format;

static const float_format formats[] = {
    {kDLBfloat, 8, 7, 127, TOP_IS_INFINITE},
    {kDLFloat8_e3m4, 3, 4, 3, TOP_IS_INFINITE},
    {kDLFloat8_e4m3, 4, 3, 7, TOP_IS_INFINITE},
    {kDLFloat8_e4m3b11fnuz, 4, 3, 11, ZERO_IS_NAN},
    {kDLFloat8_e4m3fn, 4, 3, 7, TOP_IS_NAN},
    {kDLFloat8_e4m3fnuz, 4, 3, 8, ZERO_IS_NAN},
    {kDLFloat8_e5m2, 5, 2, 15, TOP_IS_INFINITE},
    {kDLFloat8_e5m2fnuz, 5, 2, 16, ZERO_IS_NAN},
    {kDLFloat6_e2m3fn, 2, 3, 1, ALL_ARE_NUMBERS},
    {kDLFloat6_e3m2fn, 3, 2, 3, ALL_ARE_NUMBERS},
    {kDLFloat4_e2m1fn, 2, 1, 1, ALL_ARE_NUMBERS},
};

static const float_format *
find_format(uint8_t code)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].code == code) {
            return &formats[i];
        }
    }
    return NULL;
}

/* ---- float8_e8m0fnu: a power of two, without sign, zero or mantissa ---- */

#define SCALE_BIAS 127
#define SCALE_NAN 0xff

static double
decode_scale(uint32_t bits)
{
    return (bits & 0xff) == SCALE_NAN ? NAN : ldexp(1.0, (int)(bits & 0xff) - SCALE_BIAS);
}

static uint32_t
encode_scale(double value)
{
    int exponent;
    if (!(value > 0.0) || isinf(value)) {
        return SCALE_NAN;
    }
    double fraction = frexp(value, &exponent); /* 0.5 <= fraction < 1 */
    int biased = exponent - 1 + SCALE_BIAS + (fraction >= 0.75);
    return biased < 0 ? 0 : biased >= SCALE_NAN ? SCALE_NAN : (uint32_t)biased;
}

/* ---- all others ---- */

static uint32_t
magnitude_mask(const float_format *format)
{
    return (1u << (format->exponent_bits + format->mantissa_bits)) - 1;
}

/* The magnitude of the largest number. */
static uint32_t
largest_number(const float_format *format)
{
    switch (format->specials) {
    case TOP_IS_INFINITE: return magnitude_mask(format) - (1u << format->mantissa_bits);
    case TOP_IS_NAN: return magnitude_mask(format) - 1;
    default: return magnitude_mask(format);
    }
}

double
dtype_decode_float(uint8_t code, uint32_t bits)
{
    const float_format *format = find_format(code);
    if (format == NULL) {
        return decode_scale(bits);
    }
    uint32_t magnitude = bits & magnitude_mask(format);
    bool is_negative = (bits & (magnitude_mask(format) + 1)) != 0;
    uint32_t mantissa = magnitude & ((1u << format->mantissa_bits) - 1);
    int exponent = (int)(magnitude >> format->mantissa_bits);
    int least = 1 - format->bias - format->mantissa_bits; /* the smallest number is 2**least */
    double value;
    if (magnitude > largest_number(format)) {
        value = format->specials == TOP_IS_INFINITE && mantissa == 0 ? INFINITY : NAN;
    }
    else if (format->specials == ZERO_IS_NAN && is_negative && magnitude == 0) {
        return NAN;
    }
    else {
        uint32_t hidden = exponent == 0 ? 0 : 1u << format->mantissa_bits;
        value = ldexp(mantissa | hidden, exponent == 0 ? least : least + exponent - 1);
    }
    return copysign(value, is_negative ? -1.0 : 1.0);
}

/* Round to a code without its sign.  Past the largest number: the code that follows it. */
static uint32_t
round_magnitude(const float_format *format, double magnitude)
{
    /* frexp's exponent of the smallest normal number */
    int exponent, smallest = 2 - format->bias;
    double fraction = frexp(magnitude, &exponent);
    if (fraction == 0.0) {
        return 0;
    }
    if (isinf(magnitude) || exponent > smallest + (1 << format->exponent_bits)) {
        return largest_number(format) + 1;
    }
    int top = exponent < smallest ? smallest : exponent;
    /* Steps of the last bit: nearbyint ties to even. */
    double steps = nearbyint(ldexp(fraction, exponent - top + format->mantissa_bits + 1));
    uint32_t bits = ((uint32_t)(top - smallest) << format->mantissa_bits) + (uint32_t)steps;
    return bits > largest_number(format) ? largest_number(format) + 1 : bits;
}

bool
dtype_encode_float(uint8_t code, double value, uint32_t *out)
{
    const float_format *format = find_format(code);
    if (format == NULL) {
        *out = encode_scale(value);
        return true;
    }
    uint32_t sign = signbit(value) ? magnitude_mask(format) + 1 : 0;
    if (isnan(value) && format->specials == ALL_ARE_NUMBERS) {
        *out = 0;
        return false;
    }
    uint32_t magnitude = isnan(value) ? 0 : round_magnitude(format, fabs(value));
    bool is_past = magnitude > largest_number(format);
    switch (format->specials) {
    case TOP_IS_INFINITE: /* a quiet NaN has the mantissa's first bit */
        *out = sign |
               (isnan(value) ? largest_number(format) + 1 + (1u << (format->mantissa_bits - 1))
                             : magnitude);
        break;
    case TOP_IS_NAN: *out = sign | (isnan(value) ? magnitude_mask(format) : magnitude); break;
    case ZERO_IS_NAN:
        *out = isnan(value) || is_past ? magnitude_mask(format) + 1
               : magnitude == 0        ? 0
                                       : sign | magnitude;
        break;
    case ALL_ARE_NUMBERS: *out = sign | (is_past ? largest_number(format) : magnitude); break;
    }
    return true;
}
