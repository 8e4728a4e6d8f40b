/* array_order.c: axes that change places, and all items in one row: views where there are any.
 *
 * Rule:    what NumPy and torch both have under one name gives what both give; where the two differ,
 *          the call is refused with the words for either.
 * Calls:   array_views.c for the views, array_copy.h for the copies.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "array/array_copy.h"
#include "array/array_methods.h"
#include "python/args.h"
#include "python/errors.h"
#include "values/layout_type_object.h"

/* ---- axes ---- */

const char array_doc_permute[] =
    "permute($self, /, *axes)\n--\n\n"
    "A view with the axes in another order.\n\n"
    "Parameters\n----------\n"
    "axes : int or tuple of int\n"
    "    Each axis once; negative ones count from the end.\n\n"
    "Raises\n------\n"
    "ValueError\n    An axis is missing, named twice, or out of range.";

PyObject *
array_method_permute(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    int64_t axes[LAYOUT_MAX_NDIM];
    int count;
    if (array_read_ints("Array.permute", "axes", args, nargs, kwnames, axes, &count) < 0) {
        return NULL;
    }
    return array_view_by(layout_permuted, op, "Array.permute", count, axes);
}

/* The axes from `first` on in reverse. */
static PyObject *
reverse_axes(PyObject *op, int first)
{
    int64_t axes[LAYOUT_MAX_NDIM];
    int ndim = array_cast(op)->ndim;
    for (int i = 0; i < ndim; i++) {
        axes[i] = i < first ? i : first + ndim - 1 - i;
    }
    return array_view_by(layout_permuted, op, "Array", ndim, axes);
}

PyObject *
array_get_T(PyObject *op, void *Py_UNUSED(closure))
{
    return reverse_axes(op, 0);
}

PyObject *
array_get_mT(PyObject *op, void *Py_UNUSED(closure))
{
    int ndim = array_cast(op)->ndim;
    if (ndim < 2) {
        return PyErr_Format(PyExc_ValueError,
                            "Array.mT: a matrix has at least 2 dimensions, not %d.", ndim);
    }
    return reverse_axes(op, ndim - 2);
}

static PyObject *
swap_axes(PyObject *op, const char *function, int first, int second)
{
    int64_t axes[LAYOUT_MAX_NDIM];
    int ndim = array_cast(op)->ndim;
    for (int i = 0; i < ndim; i++) {
        axes[i] = i == first ? second : i == second ? first : i;
    }
    return array_view_by(layout_permuted, op, function, ndim, axes);
}

/* Two axes as the caller names them; they may be the same one. */
static int
read_two_axes(PyObject *op, const char *function, const int64_t *given, int *first, int *second)
{
    int ndim = array_cast(op)->ndim;
    layout_fault fault;
    if (!layout_axis(given[0], ndim, first, &fault) ||
        !layout_axis(given[1], ndim, second, &fault)) {
        errors_from_layout(state_of(op), function, &fault);
        return -1;
    }
    return 0;
}

const char array_doc_swapaxes[] = "swapaxes($self, /, axis1, axis2)\n--\n\n"
                                  "A view with two axes in each other's place.\n\n"
                                  "Parameters\n----------\n"
                                  "axis1, axis2 : int\n"
                                  "    Negative ones count from the end.\n\n"
                                  "Raises\n------\n"
                                  "ValueError\n    An axis is out of range.";

ARGS_METHOD(array_method_swapaxes, op, "Array.swapaxes", 0, 2, 2, "axis1", "axis2")
{
    int64_t given[2];
    int first, second;
    if (args_int64(function, "axis1", values[0], &given[0]) < 0 ||
        args_int64(function, "axis2", values[1], &given[1]) < 0 ||
        read_two_axes(op, function, given, &first, &second) < 0) {
        return NULL;
    }
    return swap_axes(op, function, first, second);
}

/* transpose(i, j): torch swaps the two; NumPy wants each axis of an array once, and so leaves one
 * of two axes as it is where they stand in order. */
static PyObject *
transpose_two(PyObject *op, const char *function, const int64_t *given)
{
    int first, second;
    if (read_two_axes(op, function, given, &first, &second) < 0) {
        return NULL;
    }
    if (array_cast(op)->ndim == 2 && first < second) {
        return PyErr_Format(PyExc_ValueError,
                            "%s: transpose(%lld, %lld) swaps the axes for torch and leaves "
                            "them in order for NumPy; write a.swapaxes(0, 1) or "
                            "a.permute(0, 1).",
                            function, (long long)given[0], (long long)given[1]);
    }
    return swap_axes(op, function, first, second);
}

const char array_doc_transpose[] =
    "transpose($self, /, *axes)\n--\n\n"
    "A view with all axes in reverse, with two swapped, or in the order that is given.\n\n"
    "Parameters\n----------\n"
    "axes : int or tuple of int, optional\n"
    "    None: all axes in reverse, as NumPy.  Two ints: these two are swapped, as torch.\n"
    "    A tuple, or one int for each of more axes: their order, as NumPy and permute().\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    An axis is missing, named twice, or out of range; or transpose(0, 1) of a matrix,\n"
    "    which NumPy leaves as it is and torch transposes.";

PyObject *
array_method_transpose(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char function[] = "Array.transpose";
    int64_t axes[LAYOUT_MAX_NDIM];
    int count;
    bool is_plain = kwnames == NULL || PyTuple_GET_SIZE(kwnames) == 0;
    if (is_plain && (nargs == 0 || (nargs == 1 && args[0] == Py_None))) {
        return reverse_axes(op, 0);
    }
    if (array_read_ints(function, "axes", args, nargs, kwnames, axes, &count) < 0) {
        return NULL;
    }
    return is_plain && nargs == 2 ? transpose_two(op, function, axes)
                                  : array_view_by(layout_permuted, op, function, count, axes);
}

const char array_doc_moveaxis[] =
    "moveaxis($self, /, source, destination)\n--\n\n"
    "A view with some axes in other places; the rest stay in order.\n\n"
    "Parameters\n----------\n"
    "source : int or tuple of int\n"
    "    The axes to move, each once.\n"
    "destination : int or tuple of int\n"
    "    The place of each in the result.  Negative ones count from the end.\n\n"
    "Raises\n------\n"
    "ValueError\n    An axis is named twice or out of range, or the two differ in length.";

ARGS_METHOD(array_method_moveaxis, op, "Array.moveaxis", 0, 2, 2, "source", "destination")
{
    int64_t given[LAYOUT_MAX_NDIM], order[LAYOUT_MAX_NDIM];
    int from[LAYOUT_MAX_NDIM], to[LAYOUT_MAX_NDIM], count, places;
    int ndim = array_cast(op)->ndim;
    uint64_t moved, taken;
    layout_fault fault;
    if (args_int64s(function, "source", values[0], given, LAYOUT_MAX_NDIM, &count) < 0) {
        return NULL;
    }
    bool is_fit = layout_axes(count, given, ndim, from, &moved, &fault);
    if (args_int64s(function, "destination", values[1], given, LAYOUT_MAX_NDIM, &places) < 0) {
        return NULL;
    }
    if (!is_fit || !layout_axes(places, given, ndim, to, &taken, &fault)) {
        return errors_from_layout(state_of(op), function, &fault);
    }
    if (count != places) {
        return PyErr_Format(PyExc_ValueError,
                            "%s: source names %d axes and destination %d places; give as many "
                            "of each.",
                            function, count, places);
    }
    for (int i = 0; i < count; i++) {
        order[to[i]] = from[i];
    }
    for (int axis = 0, place = 0; axis < ndim; axis++) {
        if (!(moved >> axis & 1)) {
            while (taken >> place & 1) {
                place++;
            }
            order[place++] = axis;
        }
    }
    return array_view_by(layout_permuted, op, function, ndim, order);
}

/* ---- all items in one row ---- */

/* The array whose items in C order are those of `op` in the order that `value` names: owned. */
static PyObject *
in_order(PyObject *op, const char *function, PyObject *value)
{
    char order;
    if (array_convert_order(function, array_cast(op), value, "CFA", &order) < 0) {
        return NULL;
    }
    return order == 'F' ? reverse_axes(op, 0) : Py_NewRef(op);
}

/* A copy of the items in C order, in this shape. */
static PyObject *
copy_as(PyObject *op, const char *function, const int64_t *shape, int ndim)
{
    array_creation what = array_like(array_cast(op));
    PyObject *copy = array_copied(function, array_cast(op), &what, NULL);
    PyObject *result = copy == NULL ? NULL : array_view_as(copy, function, shape, ndim);
    Py_XDECREF(copy);
    return result;
}

const char array_doc_ravel[] =
    "ravel($self, /, order='C')\n--\n\n"
    "All items in one axis, contiguous: a view where they lie so already, else a copy.\n\n"
    "Parameters\n----------\n"
    "order : {'C', 'F', 'A'}\n"
    "    Which axis runs fastest: the last, the first, or the first where the items lie so.\n\n"
    "Returns\n-------\nArray\n"
    "    On the same Buffer; a copy lies on one of its own, is complete and can be written.\n"
    "    reshape(-1) never copies.";

ARGS_METHOD(array_method_ravel, op, "Array.ravel", 0, 1, 0, "order")
{
    strided_layout layout;
    int64_t shape = array_cast(op)->nitems;
    PyObject *turned = in_order(op, function, values[0]);
    if (turned == NULL) {
        return NULL;
    }
    array_get_layout(array_cast(turned), &layout);
    PyObject *result = layout_is_contiguous_c(&layout)
                           ? array_view_as(turned, function, &shape, 1)
                           : copy_as(turned, function, &shape, 1);
    Py_DECREF(turned);
    return result;
}

/* The shape in which the axes from `start` to `end` are one. */
static int
join_axes(const ArrayObject *self, int start, int end, int64_t *shape)
{
    int to = 0;
    for (int axis = 0; axis < self->ndim; axis++) {
        bool is_joined = axis > start && axis <= end;
        int64_t extent = array_shape(self)[axis];
        to += axis > 0 && !is_joined;
        shape[to] = is_joined ? shape[to] * extent : extent; /* the volume at most */
    }
    return to + 1;
}

const char array_doc_flatten[] =
    "flatten($self, /, start_axis=0, end_axis=-1, *, order='C')\n--\n\n"
    "A copy in which all axes, or a run of them, are one.\n\n"
    "Parameters\n----------\n"
    "start_axis, end_axis : int\n"
    "    First and last axis of the run, both included, as torch's start_dim and end_dim.\n"
    "order : {'C', 'F', 'A'}\n"
    "    As in ravel(); may be the first argument, as NumPy has it.\n\n"
    "Returns\n-------\nArray\n"
    "    In memory of its own, complete and writable.  NumPy promises this copy, and torch\n"
    "    allows it; ravel() and reshape() give views.\n\n"
    "Raises\n------\n"
    "ValueError\n    The axes are out of range or in the wrong order.";

ARGS_METHOD(array_method_flatten, op, "Array.flatten", 0, 2, 0, "start_axis", "end_axis",
            "order")
{
    int64_t given[2] = {0, -1}, shape[LAYOUT_MAX_NDIM] = {1};
    int start = 0, end = 0, count = 1;
    bool is_order = values[0] != NULL && PyUnicode_Check(values[0]) && values[2] == NULL;
    PyObject *order = is_order ? values[0] : values[2];
    if ((values[0] && !is_order && args_int64(function, "start_axis", values[0], given) < 0) ||
        (values[1] && args_int64(function, "end_axis", values[1], given + 1) < 0)) {
        return NULL;
    }
    PyObject *turned = in_order(op, function, order);
    if (turned == NULL) {
        return NULL;
    }
    ArrayObject *self = array_cast(turned);
    PyObject *result = NULL;
    if (self->ndim > 0) { /* one item is a vector of one */
        if (read_two_axes(turned, function, given, &start, &end) < 0) {
            goto done;
        }
        if (start > end) {
            PyErr_Format(PyExc_ValueError, "%s: start_axis (%d) comes after end_axis (%d).",
                         function, start, end);
            goto done;
        }
        count = join_axes(self, start, end, shape);
    }
    result = copy_as(turned, function, shape, count);
done:
    Py_DECREF(turned);
    return result;
}

/* ---- as bytes ---- */

const char array_doc_tobytes[] =
    "tobytes($self, /, order='C')\n--\n\n"
    "The items as bytes, one after the other: nbytes of them, whatever the strides.\n\n"
    "Parameters\n----------\n"
    "order : {'C', 'F', 'A'}\n"
    "    As in ravel().\n\n"
    "Packed sub-byte items stay packed.  Waits for pending GPU work on the buffer, and\n"
    "copies from private storage too.";

ARGS_METHOD(array_method_tobytes, op, "Array.tobytes", 0, 1, 0, "order")
{
    array_side to, from;
    layout_fault fault;
    PyObject *turned = in_order(op, function, values[0]);
    if (turned == NULL) {
        return NULL;
    }
    ArrayObject *self = array_cast(turned);
    int64_t nbytes = array_nbytes(self);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
    if (bytes != NULL) {
        array_side_set(&from, self);
        to = from;
        to.array = NULL;
        to.origin = PyBytes_AS_STRING(bytes);
        to.first_bit = 0;
        to.is_readonly = false;
        if (nbytes > 0) {
            to.origin[nbytes - 1] = 0; /* packed items may leave some of its bits */
        }
        if (!layout_set_dense(&to.layout, from.layout.ndim, array_shape(self),
                              from.layout.itemsize, 'C', &fault)) {
            errors_from_layout(state_of(op), function, &fault); /* unreached: it has nbytes */
            Py_CLEAR(bytes);
        }
        else if (array_copy_sides(function, &to, &from, NULL) < 0) {
            Py_CLEAR(bytes);
        }
    }
    Py_DECREF(turned);
    return bytes;
}
