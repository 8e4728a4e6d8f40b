/* kernel_numbers.c: Python's numbers as scalars and vectors of Metal's; see metal_type.h.
 *
 * Calls: element.h, which knows how a number becomes an item; here is what a kernel wants
 *        stricter: no truth values of other things, no infinity out of a finite number.
 */
#include "kernels/metal_type.h"

#include <math.h>
#include <string.h>

#include "python/element.h"

/* NumPy's truth values have the type numpy.bool, or numpy.bool_ before NumPy 2. */
static bool
is_truth_value(PyObject *value)
{
    return PyBool_Check(value) || strncmp(Py_TYPE(value)->tp_name, "numpy.bool", 10) == 0;
}

/* Has a floating-point number of this type become an infinity? */
static bool
is_infinite(DLDataType scalar, const char *bytes)
{
    if (scalar.code != kDLFloat && scalar.code != kDLBfloat) {
        return false;
    }
    if (scalar.bits == 32) {
        float number;
        memcpy(&number, bytes, sizeof number);
        return isinf(number);
    }
    uint16_t raw;
    memcpy(&raw, bytes, sizeof raw);
    return (raw & 0x7fff) == (scalar.code == kDLFloat ? 0x7c00 : 0x7f80);
}

static int
refuse_infinity(const char *where, const metal_type *type, PyObject *value)
{
    double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (isinf(number)) {
        return 0;
    }
    PyErr_Format(PyExc_OverflowError, "%s: %R is too large for %s.", where, value,
                 type->scalar_name);
    return -1;
}

static int
pack_scalar(const char *where, const metal_type *type, PyObject *value, char *bytes)
{
    DLDataType scalar = type->scalar;
    if (scalar.code == kDLBool && !is_truth_value(value)) {
        PyErr_Format(PyExc_TypeError, "%s: a bool is True or False, not %R.", where, value);
        return -1;
    }
    if (element_pack(where, scalar, value, bytes) < 0) {
        bool is_huge = type->scalar.code != kDLInt && type->scalar.code != kDLUInt &&
                       PyLong_Check(value) && PyErr_ExceptionMatches(PyExc_OverflowError);
        if (is_huge) { /* for a double: Python says so, and not where */
            PyErr_Format(PyExc_OverflowError, "%s: the int is too large for %s.", where,
                         type->scalar_name);
        }
        return -1;
    }
    return is_infinite(scalar, bytes) ? refuse_infinity(where, type, value) : 0;
}

static int
pack_vector(const char *where, const metal_type *type, PyObject *value, char *bytes)
{
    bool is_sequence = PyTuple_Check(value) || PyList_Check(value);
    if (!is_sequence || PySequence_Fast_GET_SIZE(value) != type->lanes) {
        PyErr_Format(is_sequence ? PyExc_ValueError : PyExc_TypeError,
                     "%s: a %s%d is a tuple of %d numbers, not %R.", where, type->scalar_name,
                     type->lanes, type->lanes, value);
        return -1;
    }
    int itemsize = type->scalar.bits / 8;
    for (int lane = 0; lane < type->lanes; lane++) {
        /* owned: a number's own conversion may change the list */
        PyObject *number = PySequence_GetItem(value, lane);
        int result =
            number == NULL ? -1 : pack_scalar(where, type, number, bytes + lane * itemsize);
        Py_XDECREF(number);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

int
kernel_numbers_pack(const char *where, const metal_type *type, PyObject *value,
                    char bytes[KERNEL_NUMBER_MAX])
{
    memset(bytes, 0, KERNEL_NUMBER_MAX);
    if (type->lanes == 0 || type->columns > 0) {
        char name[METAL_TYPE_NAME_MAX];
        metal_type_write_name(type, name);
        PyErr_Format(
            PyExc_TypeError,
            "%s: %R cannot become a %s; give its bytes, a NumPy scalar of a structured "
            "dtype, or an Array.",
            where, value,
            name[0] == '\0' ? "value of a type that Metal does not report" : name);
        return -1;
    }
    return type->lanes == 1 ? pack_scalar(where, type, value, bytes)
                            : pack_vector(where, type, value, bytes);
}
