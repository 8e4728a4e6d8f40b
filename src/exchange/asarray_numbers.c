/* asarray_numbers.c: see asarray_numbers.h.
 *
 * Calls:   nested_numbers.h for lists, NumPy where arrays are in them, element.h for each
 *          number.
 * Threads: the GIL is held.
 */
#include "exchange/asarray_numbers.h"

#include "arithmetic/dtype_bits.h"
#include "array/array.h"
#include "array/array_numpy.h"
#include "array/view_items.h"
#include "exchange/nested_numbers.h"
#include "python/attribute.h"
#include "python/element.h"

/* ---- what is a number ---- */

char
asarray_numbers_kind(PyObject *x)
{
    PyObject *dtype = PyObject_GetAttrString(x, "dtype");
    PyObject *kind = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "kind");
    bool is_letter = kind != NULL && PyUnicode_Check(kind) && PyUnicode_GET_LENGTH(kind) == 1;
    Py_UCS4 letter = is_letter ? PyUnicode_READ_CHAR(kind, 0) : 0;
    Py_XDECREF(kind);
    Py_XDECREF(dtype);
    if (kind == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return letter < 128 ? (char)letter : '\0';
}

static int
refuse_item(PyObject *item)
{
    if (PyList_Check(item) || PyTuple_Check(item)) {
        PyErr_SetString(PyExc_ValueError,
                        "asarray: the nested lists differ in length or depth.");
        return -1;
    }
    PyErr_Format(PyExc_TypeError,
                 "asarray: %.100s is not a number that an element type can hold; give a "
                 "number, nested lists of numbers, or an object with DLPack or the buffer "
                 "protocol.",
                 Py_TYPE(item)->tp_name);
    return -1;
}

/* Refuse what could be converted and is no number: texts, and NumPy's dates, which are true or
 * false; also a complex scalar of NumPy's for a real type, of which float() takes a part. */
static int
check_item(PyObject *item, DLDataType dtype)
{
    if (PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item) ||
        PyComplex_CheckExact(item)) {
        return 0;
    }
    if (!PyNumber_Check(item) || PyUnicode_Check(item) || PyBytes_Check(item)) {
        return refuse_item(item);
    }
    char kind = asarray_numbers_kind(item);
    if (kind == '\0') {
        return PyErr_Occurred() ? -1 : 0;
    }
    bool is_complex_for_real = kind == 'c' && dtype.code != kDLComplex && dtype.code != kDLBool;
    return is_complex_for_real || kind == 'M' || kind == 'm' ? refuse_item(item) : 0;
}

/* ---- one number ---- */

static int
pack_whole(DLDataType dtype, PyObject *item, char *bytes)
{
    PyObject *whole = PyComplex_Check(item) ? Py_NewRef(item) : PyNumber_Long(item);
    if (whole != NULL) {
        int result = element_pack("asarray", dtype, whole, bytes);
        Py_DECREF(whole);
        return result;
    }
    /* infinity and NaN, which int() refuses in other words */
    if (PyErr_ExceptionMatches(PyExc_OverflowError) ||
        PyErr_ExceptionMatches(PyExc_ValueError)) {
        char name[DTYPE_NAME_MAX];
        dtype_write_name(dtype, name);
        PyErr_Format(PyExc_OverflowError, "asarray: %R does not fit the element type %s.", item,
                     name);
    }
    return -1;
}

static int
pack_number(DLDataType dtype, PyObject *number, char *bytes)
{
    bool is_integer = dtype.code == kDLInt || dtype.code == kDLUInt;
    return is_integer && !PyIndex_Check(number) ? pack_whole(dtype, number, bytes)
                                                : element_pack("asarray", dtype, number, bytes);
}

/* The number in an array without axes, of any library: owned (+1).  Other items are numbers. */
static PyObject *
number_of(md_state *state, PyObject *item)
{
    bool is_plain = element_is_number(item);
    int is_array = is_plain ? 0 : attribute_exists(item, state->str___array__);
    if (is_array <= 0) {
        return is_array < 0 ? NULL : Py_NewRef(item);
    }
    return PyObject_CallMethod(item, "item", NULL);
}

static int
pack_item(md_state *state, DLDataType dtype, PyObject *item, char *bytes)
{
    if (check_item(item, dtype) < 0) {
        return -1;
    }
    PyObject *number = number_of(state, item);
    bool is_good = number != NULL && (number == item || check_item(number, dtype) == 0);
    int result = is_good ? pack_number(dtype, number, bytes) : -1;
    Py_XDECREF(number);
    return result;
}

/* ---- all of them ---- */

static int
pack_items(md_state *state, PyObject *const *items, ArrayObject *array)
{
    DLDataType dtype = array->dtype;
    int64_t itemsize = dtype_itemsize(dtype);
    char *origin = array_storage(array)->address, bytes[16]; /* complex128 is the largest */
    for (int64_t i = 0; i < array->nitems; i++) {
        if (pack_item(state, dtype, items[i], bytes) < 0) {
            return -1;
        }
        if (dtype.bits < 8) {
            bits_write(origin, i * dtype.bits, dtype.bits, (uint8_t)bytes[0]);
        }
        else {
            memcpy(origin + i * itemsize, bytes, (size_t)itemsize);
        }
    }
    return 0;
}

/* An Array of these objects, in C order. */
static PyObject *
array_of_items(md_state *state, PyObject *const *items, int ndim, const int64_t *shape,
               DLDataType dtype, const import_request *request)
{
    array_creation what = {
        .mode = BRIDGE_SHARED, .order = 'C', .ndim = ndim, .shape = shape, .dtype = dtype};
    what.device = import_request_device(state, "asarray", request);
    PyObject *array = what.device == NULL ? NULL : array_allocate(state, "asarray", &what);
    if (array != NULL && pack_items(state, items, array_cast(array)) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

int
asarray_numbers(md_state *state, PyObject *x, const import_request *request, PyObject **out)
{
    nested_numbers numbers = {0};
    bool has_dtype = request->dtype != NULL && request->dtype->lanes == 1;
    DLDataType dtype;
    *out = NULL;
    int answer = nested_numbers_read(state, x, &numbers);
    if (answer == 1 && has_dtype) {
        dtype = *request->dtype;
    }
    else if (answer == 1 && nested_numbers_dtype(&numbers, x, &dtype) < 0) {
        answer = -1;
    }
    if (answer == 1) {
        *out =
            array_of_items(state, numbers.items, numbers.ndim, numbers.shape, dtype, request);
        answer = *out == NULL ? -1 : 1;
    }
    nested_numbers_clear(&numbers);
    return answer;
}

/* The objects of a NumPy array as items. */
static PyObject *
array_of_objects(md_state *state, PyObject *objects, const import_request *request)
{
    foreign_view view;
    if (view_open("asarray", objects, &view) < 0) {
        return NULL;
    }
    PyObject *array =
        array_of_items(state, view.memory.buf, view.memory.ndim,
                       (const int64_t *)view.memory.shape, *request->dtype, request);
    view_close(&view);
    return array;
}

PyObject *
asarray_numbers_by_numpy(md_state *state, PyObject *x, const import_request *request)
{
    PyObject *numpy = array_numpy_module("asarray");
    PyObject *objects =
        numpy == NULL ? NULL
                      : PyObject_CallMethod(numpy, "array", "(OO)", x, &PyBaseObject_Type);
    PyObject *array = objects == NULL ? NULL : array_of_objects(state, objects, request);
    Py_XDECREF(objects);
    Py_XDECREF(numpy);
    return array;
}
