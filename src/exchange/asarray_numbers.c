/* asarray_numbers.c: nested lists of numbers as an Array.
 *
 * Calls:   NumPy where arrays are in the lists, element.h for each number.
 * Threads: the GIL is held.
 */
#include "exchange/asarray.h"

#include "arithmetic/dtype_bits.h"
#include "array/array.h"
#include "array/array_numpy.h"
#include "array/view_items.h"
#include "python/attribute.h"
#include "python/element.h"
#include "python/errors.h"

/* The numbers in nested lists, and the shape that the lists have. */
typedef struct nested_numbers {
    PyObject *items; /* in C order: a list, owned, that nobody else sees */
    int ndim;
    bool is_shape_known; /* the first number, or an empty list, was reached */
    int64_t shape[LAYOUT_MAX_NDIM];
    Py_ssize_t place[LAYOUT_MAX_NDIM]; /* of what is being read, for messages */
    element_kind widest;               /* of all items */
    PyObject *odd;                     /* borrowed: the first item of no kind; NULL: none */
    Py_ssize_t odd_place[LAYOUT_MAX_NDIM];
} nested_numbers;

/* ---- places, for messages ---- */

/* "x[1][0]": owned (+1).  `place`: NULL for the first of each list. */
static PyObject *
place_text(const Py_ssize_t *place, int depth)
{
    PyObject *text = PyUnicode_FromString("x");
    for (int i = 0; text != NULL && i < depth; i++) {
        Py_SETREF(text, PyUnicode_FromFormat("%U[%zd]", text, place == NULL ? 0 : place[i]));
    }
    return text;
}

/* -1 with ValueError: what is read differs from the first of its depth. */
static int
refuse_ragged(const nested_numbers *numbers, int depth, const char *is, const char *first_is)
{
    PyObject *here = place_text(numbers->place, depth);
    PyObject *first = here == NULL ? NULL : place_text(NULL, depth);
    if (first != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "asarray: the nested lists differ in length or depth: %U %s where %U %s.",
                     here, is, first, first_is);
    }
    Py_XDECREF(first);
    Py_XDECREF(here);
    return -1;
}

static int
refuse_length(const nested_numbers *numbers, int depth, Py_ssize_t length)
{
    char is[48], first_is[48];
    (void)PyOS_snprintf(is, sizeof is, "has length %zd", length);
    (void)PyOS_snprintf(first_is, sizeof first_is, "has length %lld",
                        (long long)numbers->shape[depth]);
    return refuse_ragged(numbers, depth, is, first_is);
}

/* ---- reading ---- */

static bool
is_list(PyObject *op)
{
    return PyList_Check(op) || PyTuple_Check(op) || PyRange_Check(op);
}

/* Can NumPy make more of it than one number?  1, 0, or -1 with an exception. */
static int
is_for_numpy(md_state *state, PyObject *op)
{
    if (PyUnicode_Check(op) || PyBytes_Check(op)) {
        return 0;
    }
    if (PyObject_CheckBuffer(op) || PySequence_Check(op)) {
        return 1;
    }
    int is_there = attribute_exists(op, state->str___array__);
    return is_there != 0 ? is_there : attribute_exists(op, state->str___array_interface__);
}

static int
add_item(nested_numbers *numbers, PyObject *item)
{
    element_kind kind = element_kind_of(item);
    if (kind == ELEMENT_NONE && numbers->odd == NULL) {
        numbers->odd = item;
        memcpy(numbers->odd_place, numbers->place, sizeof numbers->place);
    }
    numbers->widest = kind > numbers->widest ? kind : numbers->widest;
    return PyList_Append(numbers->items, item) < 0 ? -1 : 1;
}

static int
read_item(md_state *state, PyObject *item, int depth, nested_numbers *numbers)
{
    /* a NumPy scalar has an element type, which counts if it is all there is */
    bool is_plain = element_is_number(item) && (depth > 0 || !PyObject_CheckBuffer(item));
    int is_foreign = is_plain ? 0 : is_for_numpy(state, item);
    if (is_foreign != 0) {
        return is_foreign < 0 ? -1 : 0;
    }
    if (!numbers->is_shape_known) {
        numbers->is_shape_known = true;
        numbers->ndim = depth;
    }
    return depth == numbers->ndim ? add_item(numbers, item)
                                  : refuse_ragged(numbers, depth, "is no list", "is one");
}

/* Compare the list's length with that of the first list at its depth; the first list at any
 * depth sets it. */
static int
check_length(nested_numbers *numbers, int depth, Py_ssize_t length)
{
    if (!numbers->is_shape_known) {
        if (depth == LAYOUT_MAX_NDIM) {
            return errors_raise(PyExc_ValueError,
                                "asarray: the lists are nested more than %d deep, the most "
                                "axes that an Array has.",
                                LAYOUT_MAX_NDIM);
        }
        numbers->shape[depth] = length;
        numbers->ndim = depth + 1;
        numbers->is_shape_known = length == 0;
    }
    else if (depth >= numbers->ndim) {
        return refuse_ragged(numbers, depth, "is a list", "is none");
    }
    return length == numbers->shape[depth] ? 0 : refuse_length(numbers, depth, length);
}

/* Read `x`: a number, or lists, tuples and ranges of what is read likewise.
 * 1: it was read; an item can still be no number.  0: an array or another sequence is in it,
 * which NumPy must read.  -1 with ValueError: lists of different lengths or depths, or more
 * than 64 axes. */
static int
read_nested(md_state *state, PyObject *x, int depth, nested_numbers *numbers)
{
    if (!is_list(x)) {
        return read_item(state, x, depth, numbers);
    }
    PyObject *entries = PySequence_Tuple(x); /* what is read may change a list */
    if (entries == NULL) {
        return -1;
    }
    int answer = check_length(numbers, depth, PyTuple_GET_SIZE(entries)) < 0 ? -1 : 1;
    for (Py_ssize_t i = 0; answer == 1 && i < PyTuple_GET_SIZE(entries); i++) {
        numbers->place[depth] = i;
        answer = read_nested(state, PyTuple_GET_ITEM(entries, i), depth + 1, numbers);
    }
    Py_DECREF(entries);
    return answer;
}

/* ---- the element type ---- */

static int
refuse_number(const nested_numbers *numbers, PyObject *x)
{
    PyObject *item = numbers->odd, *place = place_text(numbers->odd_place, numbers->ndim);
    if (place != NULL && PyLong_Check(item)) {
        PyErr_Format(PyExc_TypeError,
                     "asarray: %.100s (%U is beyond int64) has no element type of its own; "
                     "give a number that fits, or a dtype: 'uint64', 'float64'.",
                     Py_TYPE(x)->tp_name, place);
    }
    else if (place != NULL) {
        PyErr_Format(
            PyExc_TypeError,
            "asarray: %.100s (%U is of type %.100s) cannot be converted to numbers; give a "
            "number, nested lists of numbers, or an object with DLPack or the buffer protocol.",
            Py_TYPE(x)->tp_name, place, Py_TYPE(item)->tp_name);
    }
    Py_XDECREF(place);
    return -1;
}

/* See element_kind_dtype.  -1 with TypeError: an item is not a Python number, or an int beyond
 * int64, of which NumPy makes uint64, inexact floats or objects; the sentence names the type of `x`. */
static int
nested_numbers_dtype(const nested_numbers *numbers, PyObject *x, DLDataType *out)
{
    if (numbers->odd != NULL) {
        return refuse_number(numbers, x);
    }
    *out = element_kind_dtype(numbers->widest);
    return 0;
}

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
        /* unreached: the shape of the lists is checked before */
        return errors_raise(PyExc_ValueError,
                            "asarray: the nested lists differ in length or depth.");
    }
    return errors_raise(
        PyExc_TypeError,
        "asarray: %.100s is not a number that an element type can hold; give a number, nested "
        "lists of numbers, or an object with DLPack or the buffer protocol.",
        Py_TYPE(item)->tp_name);
}

/* Refuse what could be converted and is no number: texts, and NumPy's dates, which are true or
 * false; also a complex NumPy scalar for a real type, of which float() takes a part. */
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
        PyErr_Format(PyExc_OverflowError, "asarray: %R does not fit the element type %s.", item,
                     dtype_name(dtype).text);
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
    nested_numbers numbers = {.items = PyList_New(0)};
    bool has_dtype = request->dtype != NULL && request->dtype->lanes == 1;
    DLDataType dtype;
    *out = NULL;
    if (numbers.items == NULL) {
        return -1;
    }
    PyObject_GC_UnTrack(
        numbers.items); /* numbers run code, which could find it and change it */
    int answer = read_nested(state, x, 0, &numbers);
    if (answer == 1 && has_dtype) {
        dtype = *request->dtype;
    }
    else if (answer == 1 && nested_numbers_dtype(&numbers, x, &dtype) < 0) {
        answer = -1;
    }
    if (answer == 1) {
        *out = array_of_items(state, PySequence_Fast_ITEMS(numbers.items), numbers.ndim,
                              numbers.shape, dtype, request);
        answer = *out == NULL ? -1 : 1;
    }
    Py_DECREF(numbers.items);
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
    PyObject *frozen = numpy == NULL ? NULL : array_numpy_freeze(x);
    PyObject *objects = frozen == NULL ? NULL
                                       : PyObject_CallMethod(numpy, "array", "(OO)", frozen,
                                                             &PyBaseObject_Type);
    PyObject *array = objects == NULL ? NULL : array_of_objects(state, objects, request);
    Py_XDECREF(objects);
    Py_XDECREF(frozen);
    Py_XDECREF(numpy);
    return array;
}
