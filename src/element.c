/* element.c: see element.h. */
#include "element.h"

#include <math.h>
#include <string.h>

/* ---- small floats: bits around a sign, as IEEE 754 counts them ---- */

typedef struct float_format {
    int exponent_bits, mantissa_bits, bias;
    bool has_infinity; /* the top exponent means inf and nan, as in IEEE 754 */
} float_format;

static const float_format bfloat16_format = {8, 7, 127, true};

static double
decode_float(const float_format *format, uint32_t bits)
{
    uint32_t mantissa_mask = (1u << format->mantissa_bits) - 1;
    uint32_t exponent_mask = (1u << format->exponent_bits) - 1;
    uint32_t mantissa = bits & mantissa_mask;
    uint32_t exponent = bits >> format->mantissa_bits & exponent_mask;
    bool is_negative = bits >> (format->mantissa_bits + format->exponent_bits) & 1;
    double value;
    if (exponent == exponent_mask && format->has_infinity) {
        value = mantissa == 0 ? INFINITY : NAN;
    }
    else if (exponent == 0) {
        value = ldexp(mantissa, 1 - format->bias - format->mantissa_bits);
    }
    else {
        value = ldexp(mantissa | (mantissa_mask + 1),
                      (int)exponent - format->bias - format->mantissa_bits);
    }
    return copysign(value, is_negative ? -1.0 : 1.0);
}

/* Rounds a double once, to nearest even; by way of float it would be rounded twice. */
static uint16_t
encode_bfloat16(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) {
        return sign | 0x7fc0;
    }
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* 0.5 <= fraction < 1, or 0 or inf */
    if (isinf(value) || exponent > 128) {
        return sign | 0x7f80;
    }
    if (fraction == 0.0) {
        return sign;
    }
    int step = exponent < -125 ? -133 : exponent - 8; /* the value of the last bit is 2**step */
    double steps = nearbyint(ldexp(fraction, exponent - step));
    uint32_t biased = exponent < -125 ? 0 : (uint32_t)(exponent + 125);
    return (uint16_t)(sign | (uint16_t)((biased << 7) + (uint32_t)steps));
}

/* ---- kinds ---- */

bool
element_is_number(DLDataType dtype)
{
    if (dtype.lanes != 1 || dtype.bits < 8) {
        return false;
    }
    switch (dtype.code) {
    case kDLInt:
    case kDLUInt:
    case kDLFloat:
    case kDLBfloat:
    case kDLBool:
        return true;
    case kDLComplex:
        return dtype.bits == 64 || dtype.bits == 128;
    default:
        return false;
    }
}

static PyObject *
unpack_int(DLDataType dtype, const char *bytes)
{
    uint64_t raw = 0;
    memcpy(&raw, bytes, dtype.bits / 8); /* every target is little-endian */
    if (dtype.code == kDLUInt) {
        return PyLong_FromUnsignedLongLong(raw);
    }
    int unused = 64 - dtype.bits;
    return PyLong_FromLongLong((int64_t)(raw << unused) >> unused);
}

static double
unpack_real(int bits, const char *bytes)
{
    if (bits == 16) {
        return PyFloat_Unpack2(bytes, 1);
    }
    if (bits == 32) {
        float value;
        memcpy(&value, bytes, sizeof value);
        return value;
    }
    double value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

PyObject *
element_unpack(DLDataType dtype, const char *bytes)
{
    switch (dtype.code) {
    case kDLBool:
        return PyBool_FromLong(bytes[0] != 0);
    case kDLFloat:
        return PyFloat_FromDouble(unpack_real(dtype.bits, bytes));
    case kDLBfloat: {
        uint16_t raw;
        memcpy(&raw, bytes, sizeof raw);
        return PyFloat_FromDouble(decode_float(&bfloat16_format, raw));
    }
    case kDLComplex: {
        int half = dtype.bits / 2;
        return PyComplex_FromDoubles(unpack_real(half, bytes),
                                     unpack_real(half, bytes + half / 8));
    }
    default:
        return unpack_int(dtype, bytes);
    }
}

/* ---- packing ---- */

static int
refuse_value(const char *function, DLDataType dtype, PyObject *value, PyObject *error)
{
    char name[DTYPE_NAME_MAX];
    dtype_write_name(dtype, name);
    PyErr_Format(error, "%s: %R does not fit the element type %s.", function, value, name);
    return -1;
}

/* Python's exception says less than ours if it is an `error`; any other is the value's own. */
static int
explain_error(const char *function, DLDataType dtype, PyObject *value, PyObject *error)
{
    if (!PyErr_ExceptionMatches(error)) {
        return -1;
    }
    PyErr_Clear();
    return refuse_value(function, dtype, value, error);
}

static int
pack_int(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    if (!PyIndex_Check(value)) {
        return refuse_value(function, dtype, value, PyExc_TypeError);
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return -1;
    }
    bool is_signed = dtype.code == kDLInt;
    uint64_t raw = is_signed ? (uint64_t)PyLong_AsLongLong(number)
                             : PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) { /* past 64 bits, or negative for an unsigned type */
        return explain_error(function, dtype, value, PyExc_OverflowError);
    }
    int unused = 64 - dtype.bits;
    uint64_t back = is_signed ? (uint64_t)((int64_t)(raw << unused) >> unused)
                              : raw << unused >> unused;
    if (back != raw) {
        return refuse_value(function, dtype, value, PyExc_OverflowError);
    }
    memcpy(bytes, &raw, dtype.bits / 8);
    return 0;
}

static int
pack_real(int bits, double value, char *bytes)
{
    if (bits == 16) {
        if (PyFloat_Pack2(value, bytes, 1) < 0) {
            /* Too large for a half: NumPy's answer is an infinity. */
            PyErr_Clear();
            return PyFloat_Pack2(copysign(INFINITY, value), bytes, 1);
        }
        return 0;
    }
    if (bits == 32) {
        float narrow = (float)value;
        memcpy(bytes, &narrow, sizeof narrow);
        return 0;
    }
    memcpy(bytes, &value, sizeof value);
    return 0;
}

static int
pack_float(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    if (dtype.code == kDLBfloat) {
        uint16_t raw = encode_bfloat16(number);
        memcpy(bytes, &raw, sizeof raw);
        return 0;
    }
    return pack_real(dtype.bits, number, bytes);
}

static int
pack_complex(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    Py_complex number = PyComplex_AsCComplex(value);
    if (number.real == -1.0 && PyErr_Occurred()) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    int half = dtype.bits / 2;
    if (pack_real(half, number.real, bytes) < 0) {
        return -1;
    }
    return pack_real(half, number.imag, bytes + half / 8);
}

int
element_pack(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    switch (dtype.code) {
    case kDLBool: {
        int is_true = PyObject_IsTrue(value);
        bytes[0] = (char)(is_true == 1);
        return is_true < 0 ? -1 : 0;
    }
    case kDLFloat:
    case kDLBfloat:
        return pack_float(function, dtype, value, bytes);
    case kDLComplex:
        return pack_complex(function, dtype, value, bytes);
    default:
        return pack_int(function, dtype, value, bytes);
    }
}
