/* nested_numbers.c: see nested_numbers.h. */
#include "exchange/nested_numbers.h"

#include "python/attribute.h"
#include "python/element.h"

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
    if (numbers->count == numbers->capacity) {
        Py_ssize_t capacity = numbers->capacity == 0 ? 16 : 2 * numbers->capacity;
        PyObject **items = PyMem_Realloc(numbers->items, (size_t)capacity * sizeof *items);
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        numbers->items = items;
        numbers->capacity = capacity;
    }
    numbers->items[numbers->count++] = Py_NewRef(item);
    return 1;
}

static int
read_item(md_state *state, PyObject *item, int depth, nested_numbers *numbers)
{
    /* a scalar of NumPy's has an element type, which counts if it is all there is */
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
            PyErr_Format(PyExc_ValueError,
                         "asarray: the lists are nested more than %d deep, the most axes that "
                         "an Array has.",
                         LAYOUT_MAX_NDIM);
            return -1;
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

int
nested_numbers_read(md_state *state, PyObject *x, nested_numbers *out)
{
    return read_nested(state, x, 0, out);
}

void
nested_numbers_clear(nested_numbers *numbers)
{
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        Py_DECREF(numbers->items[i]);
    }
    PyMem_Free(numbers->items);
    *numbers = (nested_numbers){0};
}

/* ---- the element type ---- */

/* In the order in which one gives way to the next. */
enum { HAS_NONE, HAS_BOOL, HAS_INT, HAS_FLOAT, HAS_COMPLEX };

/* -1 without an exception: it is no number of Python's, or an int beyond int64. */
static int
kind_of(PyObject *item)
{
    if (PyBool_Check(item)) {
        return HAS_BOOL;
    }
    if (PyLong_Check(item)) {
        int overflow;
        (void)PyLong_AsLongLongAndOverflow(item, &overflow);
        return overflow == 0 ? HAS_INT : -1;
    }
    return PyFloat_Check(item) ? HAS_FLOAT : PyComplex_Check(item) ? HAS_COMPLEX : -1;
}

/* The place of item `index`, as it was when it was read. */
static PyObject *
place_of_index(const nested_numbers *numbers, Py_ssize_t index)
{
    Py_ssize_t place[LAYOUT_MAX_NDIM];
    for (int axis = numbers->ndim - 1; axis >= 0; axis--) {
        place[axis] = index % (Py_ssize_t)numbers->shape[axis];
        index /= (Py_ssize_t)numbers->shape[axis];
    }
    return place_text(place, numbers->ndim);
}

static int
refuse_item(const nested_numbers *numbers, PyObject *x, Py_ssize_t index)
{
    PyObject *item = numbers->items[index];
    PyObject *place = place_of_index(numbers, index);
    if (place != NULL && PyLong_Check(item)) {
        PyErr_Format(
            PyExc_TypeError,
            "asarray: %.100s (%U is beyond int64) has no element type of its own; give "
            "a number that fits, or a dtype: 'uint64', 'float64'.",
            Py_TYPE(x)->tp_name, place);
    }
    else if (place != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "asarray: %.100s (%U is of type %.100s) cannot be converted to numbers; "
                     "give a number, nested lists of numbers, or an object with DLPack or the "
                     "buffer protocol.",
                     Py_TYPE(x)->tp_name, place, Py_TYPE(item)->tp_name);
    }
    Py_XDECREF(place);
    return -1;
}

int
nested_numbers_dtype(const nested_numbers *numbers, PyObject *x, DLDataType *out)
{
    static const DLDataType types[] = {[HAS_NONE] = {kDLFloat, 32, 1},
                                       [HAS_BOOL] = {kDLBool, 8, 1},
                                       [HAS_INT] = {kDLInt, 64, 1},
                                       [HAS_FLOAT] = {kDLFloat, 32, 1},
                                       [HAS_COMPLEX] = {kDLComplex, 64, 1}};
    int widest = HAS_NONE;
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        int kind = kind_of(numbers->items[i]);
        if (kind < 0) {
            return refuse_item(numbers, x, i);
        }
        widest = kind > widest ? kind : widest;
    }
    *out = types[widest];
    return 0;
}
