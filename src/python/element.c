/* element.c: see element.h. */
#include "python/element.h"

#include <math.h>
#include <string.h>

#include "arithmetic/dtype.h"
#include "arithmetic/dtype_bits.h"
#include "python/errors.h"

/* ---- kinds ---- */

element_kind
element_kind_of(PyObject *op)
{
    if (PyBool_Check(op)) {
        return ELEMENT_BOOL;
    }
    if (PyLong_Check(op)) {
        int overflow;
        (void)PyLong_AsLongLongAndOverflow(op, &overflow);
        return overflow == 0 ? ELEMENT_INT : ELEMENT_NONE;
    }
    return PyFloat_Check(op)     ? ELEMENT_FLOAT
           : PyComplex_Check(op) ? ELEMENT_COMPLEX
                                 : ELEMENT_NONE;
}

DLDataType
element_kind_dtype(element_kind kind)
{
    static const DLDataType types[] = {[ELEMENT_NONE] = {kDLFloat, 32, 1},
                                       [ELEMENT_BOOL] = {kDLBool, 8, 1},
                                       [ELEMENT_INT] = {kDLInt, 64, 1},
                                       [ELEMENT_FLOAT] = {kDLFloat, 32, 1},
                                       [ELEMENT_COMPLEX] = {kDLComplex, 64, 1}};
    return types[kind];
}

/* ---- reading ---- */

/* The bits of one lane, up to 64; every target is little-endian. */
static uint64_t
read_lane(DLDataType dtype, const char *bytes, int64_t first_bit)
{
    if (dtype.bits < 8) {
        return bits_read(bytes, first_bit, dtype.bits);
    }
    uint64_t raw = 0;
    memcpy(&raw, bytes + first_bit / 8, dtype.bits / 8);
    return raw;
}

static PyObject *
int_of_bits(DLDataType dtype, uint64_t raw)
{
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

static PyObject *
unpack_lane(DLDataType dtype, const char *bytes, int64_t first_bit)
{
    const char *place = bytes + first_bit / 8;
    switch (dtype.code) {
    case kDLBool: return PyBool_FromLong(place[0] != 0);
    case kDLFloat: return PyFloat_FromDouble(unpack_real(dtype.bits, place));
    case kDLComplex: {
        int half = dtype.bits / 2;
        return PyComplex_FromDoubles(unpack_real(half, place),
                                     unpack_real(half, place + half / 8));
    }
    case kDLInt:
    case kDLUInt: return int_of_bits(dtype, read_lane(dtype, bytes, first_bit));
    default:
        return PyFloat_FromDouble(
            dtype_decode_float(dtype.code, (uint32_t)read_lane(dtype, bytes, first_bit)));
    }
}

PyObject *
element_unpack(DLDataType dtype, const char *bytes, int64_t first_bit)
{
    if (dtype.lanes == 1) {
        return unpack_lane(dtype, bytes, first_bit);
    }
    PyObject *lanes = PyTuple_New(dtype.lanes);
    for (int64_t lane = 0; lanes != NULL && lane < dtype.lanes; lane++) {
        state_fill_tuple(&lanes, (Py_ssize_t)lane,
                         unpack_lane(dtype, bytes, first_bit + lane * dtype.bits));
    }
    return lanes;
}

/* ---- packing ---- */

static int
refuse_value(const char *function, DLDataType dtype, PyObject *value, PyObject *error)
{
    return errors_raise(error, "%s: %R does not fit the element type %s.", function, value,
                        dtype_name(dtype).text);
}

/* Replace Python's exception of class `error`, which says less than ours.  Any other was raised
 * by the value's own code, and stays. */
static int
explain_error(const char *function, DLDataType dtype, PyObject *value, PyObject *error)
{
    if (!PyErr_ExceptionMatches(error)) {
        return -1;
    }
    /* mutant survives (dropped call): the next exception takes its place */
    PyErr_Clear();
    return refuse_value(function, dtype, value, error);
}

static int
pack_int(const char *function, DLDataType dtype, PyObject *value, uint64_t *out)
{
    if (!PyIndex_Check(value)) {
        return refuse_value(function, dtype, value, PyExc_TypeError);
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    bool is_signed = dtype.code == kDLInt;
    uint64_t raw =
        is_signed ? (uint64_t)PyLong_AsLongLong(number) : PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) { /* past 64 bits, or negative for an unsigned type */
        return explain_error(function, dtype, value, PyExc_OverflowError);
    }
    int unused = 64 - dtype.bits;
    uint64_t back =
        is_signed ? (uint64_t)((int64_t)(raw << unused) >> unused) : raw << unused >> unused;
    if (back != raw) {
        return refuse_value(function, dtype, value, PyExc_OverflowError);
    }
    *out = raw;
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

/* An integer as a double that rounds to fewer bits as the integer itself would: rounded to odd.
 * Take the one of the two neighbouring doubles whose last bit is 1. */
static double
odd_double(PyObject *integer)
{
    double nearest = PyLong_AsDouble(integer);
    if (fabs(nearest) <= 0x1p53) { /* exact; or -1.0 with an exception */
        return nearest;
    }
    PyObject *back = PyLong_FromDouble(nearest);
    int is_below = back == NULL ? -1 : PyObject_RichCompareBool(back, integer, Py_LT);
    int is_exact = is_below < 0 ? -1 : PyObject_RichCompareBool(back, integer, Py_EQ);
    Py_XDECREF(back);
    if (is_exact < 0) {
        return -1.0;
    }
    uint64_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    bool is_odd = (bits & 1) != 0;
    return is_exact || is_odd ? nearest : nextafter(nearest, is_below ? INFINITY : -INFINITY);
}

/* 1: `value` is an integer, `*out`, owned (+1).  0: it is none, as an array of one float that
 * has __index__ and refuses.  -1: an exception of the value's own code. */
static int
read_integer(PyObject *value, PyObject **out)
{
    *out = PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (*out != NULL) {
        return 1;
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* `value` as a double, to be rounded once more to `bits` bits.  -1.0 with an exception. */
static double
read_real(PyObject *value, int bits)
{
    PyObject *integer = NULL;
    bool is_read = bits == 64 || PyFloat_Check(value);
    int is_integer = is_read ? 0 : read_integer(value, &integer);
    double number = is_integer == 1   ? odd_double(integer)
                    : is_integer == 0 ? PyFloat_AsDouble(value)
                                      : -1.0;
    Py_XDECREF(integer);
    return number;
}

static int
pack_float(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    double number = read_real(value, dtype.bits);
    if (number == -1.0 && PyErr_Occurred()) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    return pack_real(dtype.bits, number, bytes);
}

static int
pack_small_float(const char *function, DLDataType dtype, PyObject *value, uint64_t *out)
{
    uint32_t bits;
    double number = read_real(value, dtype.bits);
    if (number == -1.0 && PyErr_Occurred()) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    if (!dtype_encode_float(dtype.code, number, &bits)) {
        return refuse_value(function, dtype, value, PyExc_OverflowError);
    }
    *out = bits;
    return 0;
}

static int
pack_complex(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    int half = dtype.bits / 2;
    PyObject *integer = NULL;
    int is_integer = read_integer(value, &integer);
    if (is_integer < 0) {
        return -1;
    }
    Py_complex number =
        is_integer ? (Py_complex){read_real(integer, half), 0.0} : PyComplex_AsCComplex(value);
    Py_XDECREF(integer);
    if (number.real == -1.0 && PyErr_Occurred()) {
        return explain_error(function, dtype, value, PyExc_TypeError);
    }
    if (pack_real(half, number.real, bytes) < 0) {
        return -1;
    }
    return pack_real(half, number.imag, bytes + half / 8);
}

static int
pack_lane(const char *function, DLDataType dtype, PyObject *value, char *bytes,
          int64_t first_bit)
{
    uint64_t raw = 0;
    char *place = bytes + first_bit / 8;
    int result;
    switch (dtype.code) {
    case kDLBool: {
        int is_true = PyObject_IsTrue(value);
        place[0] = (char)(is_true == 1);
        return is_true < 0 ? -1 : 0;
    }
    case kDLFloat: return pack_float(function, dtype, value, place);
    case kDLComplex: return pack_complex(function, dtype, value, place);
    case kDLInt:
    case kDLUInt: result = pack_int(function, dtype, value, &raw); break;
    default: result = pack_small_float(function, dtype, value, &raw);
    }
    if (result == 0 && dtype.bits < 8) {
        bits_write(bytes, first_bit, dtype.bits, (uint8_t)raw);
    }
    else if (result == 0) {
        memcpy(place, &raw, dtype.bits / 8);
    }
    return result;
}

/* A number goes into every lane, a sequence lane by lane. */
static int
pack_lanes(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    bool is_sequence = PyTuple_Check(value) || PyList_Check(value);
    if (is_sequence && PySequence_Fast_GET_SIZE(value) != dtype.lanes) {
        return errors_raise(PyExc_ValueError, "%s: an item of %s has %d lanes, not %zd.",
                            function, dtype_name(dtype).text, (int)dtype.lanes,
                            PySequence_Fast_GET_SIZE(value));
    }
    for (int64_t lane = 0; lane < dtype.lanes; lane++) {
        /* Owned: a number's own conversion may change the list. */
        PyObject *number =
            is_sequence ? PySequence_GetItem(value, (Py_ssize_t)lane) : Py_NewRef(value);
        int result =
            number == NULL ? -1 : pack_lane(function, dtype, number, bytes, lane * dtype.bits);
        Py_XDECREF(number);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

int
element_pack(const char *function, DLDataType dtype, PyObject *value, char *bytes)
{
    memset(bytes, 0, (size_t)dtype_itemsize(dtype));
    return dtype.lanes == 1 ? pack_lane(function, dtype, value, bytes, 0)
                            : pack_lanes(function, dtype, value, bytes);
}
