/* metal_type.c: see kernel_object.h.
 *
 * Calls: element.h, which knows how a number becomes an item; here is what a kernel wants
 *        stricter: no truth values of other things, no infinity out of a finite number.
 */
#include "kernels/kernel_object.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "python/element.h"
#include "python/errors.h"
#include "softmetal/metal_scalars.h"

static const struct {
    const char *name;
    unsigned first, matrix;
    uint8_t code, bits;
} scalars[] = {
#define SCALAR(name, type, matrix, code, bits) {#name, type, matrix, code, bits},
    METAL_SCALARS(SCALAR)
#undef SCALAR
};
#define SCALARS (sizeof scalars / sizeof scalars[0])

enum { DATA_TYPE_STRUCT = 1, DATA_TYPE_ARRAY = 2, MATRICES = 9 };

metal_type
metal_type_of(unsigned data_type)
{
    metal_type type = {.is_struct =
                           data_type == DATA_TYPE_STRUCT || data_type == DATA_TYPE_ARRAY};
    for (size_t i = 0; i < SCALARS; i++) {
        unsigned lanes = data_type - scalars[i].first + 1;
        unsigned shape = data_type - scalars[i].matrix;
        bool is_matrix = scalars[i].matrix != 0 && shape < MATRICES;
        if (!is_matrix && (lanes < 1 || lanes > 4)) {
            continue;
        }
        type.scalar_name = scalars[i].name;
        type.scalar = (DLDataType){scalars[i].code, scalars[i].bits, 1};
        type.columns = is_matrix ? (int)(shape / 3 + 2) : 0;
        type.lanes = is_matrix ? type.columns * (int)(shape % 3 + 2) : (int)lanes;
        break;
    }
    return type;
}

void
metal_type_write_name(const metal_type *type, char out[METAL_TYPE_NAME_MAX])
{
    const char *name = type->scalar_name;
    if (type->columns > 0) {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s%dx%d", name, type->columns,
                       type->lanes / type->columns);
    }
    else if (type->lanes > 1) {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s%d", name, type->lanes);
    }
    else {
        (void)snprintf(out, METAL_TYPE_NAME_MAX, "%s",
                       name != NULL      ? name
                       : type->is_struct ? "struct"
                                         : "");
    }
}

const char *
metal_type_name_for(DLDataType dtype)
{
    for (size_t i = 0; i < SCALARS; i++) {
        if (scalars[i].code == dtype.code && scalars[i].bits == dtype.bits) {
            return scalars[i].name;
        }
    }
    return dtype.code != kDLComplex ? NULL
           : dtype.bits == 64       ? "float2"
           : dtype.bits == 32       ? "half2"
                                    : NULL;
}

bool
metal_type_takes(const metal_type *type, DLDataType dtype)
{
    DLDataType scalar = type->scalar;
    if (type->lanes == 0 || (scalar.code == dtype.code && scalar.bits == dtype.bits)) {
        return true;
    }
    if (dtype.code == kDLComplex && metal_type_name_for(dtype) != NULL) {
        return scalar.code == kDLFloat && scalar.bits * 2 == dtype.bits && type->lanes == 2;
    }
    return scalar.code == kDLUInt && scalar.bits == 8 && metal_type_name_for(dtype) == NULL;
}

int
metal_type_add_names(PyObject *module)
{
    PyObject *names = PyDict_New();
    int result = names == NULL ? -1 : 0;
    for (size_t i = 0; result == 0 && i < SCALARS; i++) {
        dtype_text text = dtype_name((DLDataType){scalars[i].code, scalars[i].bits, 1});
        PyObject *name = PyUnicode_FromString(text.text);
        result = name == NULL ? -1 : PyDict_SetItemString(names, scalars[i].name, name);
        Py_XDECREF(name);
    }
    result = result < 0 ? -1 : PyModule_AddObjectRef(module, "_metal_scalars", names);
    Py_XDECREF(names);
    return result;
}

/* ---- Python's numbers as scalars and vectors ---- */

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
    return errors_raise(PyExc_OverflowError, "%s: %R is too large for %s.", where, value,
                        type->scalar_name);
}

/* A pointer to several numbers looks to Metal like one to one. */
static int
refuse_several(const char *where, const metal_type *type, PyObject *value)
{
    return errors_raise(
        PyExc_TypeError,
        "%s: a %s of %zd items is not one %s; where a kernel takes a pointer to "
        "several, give an Array: md.asarray(x, dtype='%s').",
        where, Py_TYPE(value)->tp_name, PyObject_Size(value), type->scalar_name,
        dtype_name(type->scalar).text);
}

static int
pack_scalar(const char *where, const metal_type *type, PyObject *value, char *bytes)
{
    DLDataType scalar = type->scalar;
    if (PyTuple_Check(value) || PyList_Check(value)) {
        return refuse_several(where, type, value);
    }
    if (scalar.code == kDLBool && !is_truth_value(value)) {
        return errors_raise(PyExc_TypeError, "%s: a bool is True or False, not %R.", where,
                            value);
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
        return errors_raise(is_sequence ? PyExc_ValueError : PyExc_TypeError,
                            "%s: a %s%d is a tuple of %d numbers, not %R.", where,
                            type->scalar_name, type->lanes, type->lanes, value);
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
        return errors_raise(
            PyExc_TypeError,
            "%s: %R cannot become a %s; give its bytes, a NumPy scalar of a structured "
            "dtype, or an Array.",
            where, value,
            name[0] == '\0' ? "value of a type that Metal does not report" : name);
    }
    return type->lanes == 1 ? pack_scalar(where, type, value, bytes)
                            : pack_vector(where, type, value, bytes);
}
