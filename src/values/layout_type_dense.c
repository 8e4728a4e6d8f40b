/* layout_type_dense.c: the methods of a StridedLayout that make it dense or repack it; see
 * layout_type_object.h.
 *
 * Rule: a method that would give back an equal layout gives back the same object.
 */
#include "values/layout_type_object.h"

/* ---- dense layouts ---- */

/* 'C', 'F', 'K', or 'P' for a permutation, which goes to `axes`; 0 with an exception set. */
static char
read_order(const char *function, PyObject *value, bool allows_keep, int64_t *axes, int *count)
{
    if (value == NULL) {
        return allows_keep ? 'K' : 'C';
    }
    if (PyTuple_Check(value) || PyList_Check(value)) {
        return args_int64s(function, "stride_order", value, axes, LAYOUT_MAX_NDIM, count) < 0
                   ? 0
                   : 'P';
    }
    if (PyUnicode_Check(value) && PyUnicode_GetLength(value) == 1) {
        Py_UCS4 letter = PyUnicode_ReadChar(value, 0);
        if (letter == 'C' || letter == 'F' || (letter == 'K' && allows_keep)) {
            return (char)letter;
        }
    }
    PyErr_Format(PyExc_ValueError, "%s: stride_order is %s'C', 'F' or a permutation, not %R.",
                 function, allows_keep ? "'K', " : "", value);
    return 0;
}

static PyObject *
new_dense(PyTypeObject *type, const char *function, const strided_layout *like, char order,
          int64_t *axes, int count)
{
    strided_layout out;
    layout_fault fault;
    count = order == 'P' ? count : like->ndim;
    for (int i = 0; i < like->ndim && order != 'P'; i++) {
        axes[i] = order == 'F' ? like->ndim - 1 - i : i;
    }
    if (order == 'K') {
        layout_stride_order(like, axes);
    }
    if (!layout_set_ordered(&out, like->ndim, like->shape, like->itemsize, count, axes,
                            &fault)) {
        return errors_from_layout(NULL, function, &fault);
    }
    return layout_object_new(type, &out);
}

LAYOUT_DOC(
    dense,
    "dense($type, /, shape, itemsize, stride_order='C')\n--\n\n"
    "The layout without gaps in a given order, at offset 0.\n\n"
    "Parameters\n----------\n"
    "shape : int or sequence of int\n"
    "    The extents.\n"
    "itemsize : int\n"
    "    Bytes in one item, at least 1.\n"
    "stride_order : 'C', 'F', or sequence of int, default 'C'\n"
    "    A permutation of the axes: the first has the longest stride, the last one stride "
    "1.\n\n"
    "Returns\n-------\n"
    "StridedLayout\n    Its strides are 0 if there are no items.\n\n"
    "Raises\n------\n"
    "OverflowError\n    The bytes cannot be counted in 64 bits.\n"
    "ValueError\n"
    "    An extent is negative, there are more than 64, itemsize is below 1, or there is no\n"
    "    such order.\n\n");

ARGS_METHOD(layout_method_dense, class, "StridedLayout.dense", 0, 3, 2, "shape", "itemsize",
            "stride_order")
{
    strided_layout like;
    int64_t axes[LAYOUT_MAX_NDIM];
    int count = 0;
    if (args_int64s(function, "shape", values[0], like.shape, LAYOUT_MAX_NDIM, &like.ndim) <
            0 ||
        layout_read_int(function, "itemsize", values[1], &like.itemsize) < 0) {
        return NULL;
    }
    char order = read_order(function, values[2], false, axes, &count);
    return order == 0 ? NULL
                      : new_dense((PyTypeObject *)class, function, &like, order, axes, count);
}

/* Is it dense in that order already? */
static bool
is_dense(PyObject *op, char order)
{
    if (layout_cast(op)->offset != 0 || order == 'P') {
        return false;
    }
    return layout_answer(op, order == 'C'   ? ANSWER_CONTIGUOUS_C
                             : order == 'F' ? ANSWER_CONTIGUOUS_F
                                            : ANSWER_CONTIGUOUS_ANY);
}

static PyObject *
make_dense(const char *function, PyObject *op, PyObject *order_value)
{
    strided_layout layout;
    int64_t axes[LAYOUT_MAX_NDIM];
    int count = 0;
    char order = read_order(function, order_value, true, axes, &count);
    if (order == 0) {
        return NULL;
    }
    if (is_dense(op, order)) {
        return Py_NewRef(op);
    }
    layout_read(op, &layout);
    return new_dense(Py_TYPE(op), function, &layout, order, axes, count);
}

LAYOUT_DOC(dense_like,
           "dense_like($type, /, other, stride_order='K')\n--\n\n"
           "The layout without gaps of another's shape and itemsize, at offset 0.\n\n"
           "Parameters\n----------\n"
           "other : StridedLayout\n"
           "stride_order : 'K', 'C', 'F', or sequence of int, default 'K'\n"
           "    'K' keeps the order of the other's strides; the rest as in `dense`.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n    `other` itself, if it is dense in that order already.\n\n"
           "Raises\n------\n"
           "TypeError\n    `other` is not a StridedLayout.\n"
           "ValueError\n    There is no such order.\n\n");

ARGS_METHOD(layout_method_dense_like, class, "StridedLayout.dense_like", 0, 2, 1, "other",
            "stride_order")
{
    if (!Py_IS_TYPE(values[0], (PyTypeObject *)class)) {
        (void)args_refuse_type(function, "other", "a StridedLayout", values[0]);
        return NULL;
    }
    return make_dense(function, values[0], values[1]);
}

LAYOUT_DOC(to_dense,
           "to_dense($self, /, stride_order='K')\n--\n\n"
           "This shape and itemsize without gaps, at offset 0: `dense_like` of this layout.\n\n"
           "Parameters\n----------\n"
           "stride_order : 'K', 'C', 'F', or sequence of int, default 'K'\n"
           "    'K' keeps the order of the strides.\n\n"
           "Returns\n-------\n"
           "StridedLayout\n    This one, if it is dense in that order already.\n\n"
           "Raises\n------\n"
           "ValueError\n    There is no such order.\n\n");

ARGS_METHOD(layout_method_to_dense, op, "StridedLayout.to_dense", 0, 1, 0, "stride_order")
{
    return make_dense(function, op, values[0]);
}

/* ---- other items ---- */

LAYOUT_DOC(
    repacked,
    "repacked($self, /, itemsize, data_ptr=0, axis=-1, keep_dim=True)\n--\n\n"
    "The same bytes as items of another size.\n\n"
    "Parameters\n----------\n"
    "itemsize : int\n"
    "    Bytes in one item: a multiple or a divisor of the present itemsize.\n"
    "data_ptr : int, default 0\n"
    "    The base's address, if it is to be checked: a multiple of the larger itemsize.\n"
    "axis : int, default -1\n"
    "    The axis that shrinks or grows; its stride is 1 and it is not empty.\n"
    "keep_dim : bool, default True\n"
    "    False: an axis that shrinks to extent 1 is dropped.\n\n"
    "Returns\n-------\n"
    "StridedLayout\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    The axis is out of range, empty or not of stride 1; or, for larger items, its\n"
    "    extent, another stride, slice_offset or data_ptr is no multiple.\n"
    "OverflowError\n    A count of smaller items does not fit in 64 bits.\n\n");

ARGS_METHOD(layout_method_repacked, op, "StridedLayout.repacked", 0, 4, 1, "itemsize",
            "data_ptr", "axis", "keep_dim")
{
    strided_layout layout;
    layout_fault fault;
    int64_t itemsize = 0, address = 0, axis = -1;
    int keep_axis = 1;
    if (layout_read_int(function, "itemsize", values[0], &itemsize) < 0 ||
        layout_read_int(function, "data_ptr", values[1], &address) < 0 ||
        layout_read_int(function, "axis", values[2], &axis) < 0 ||
        (values[3] != NULL && (keep_axis = PyObject_IsTrue(values[3])) < 0)) {
        return NULL;
    }
    layout_read(op, &layout);
    if (itemsize == layout.itemsize) {
        return Py_NewRef(op);
    }
    int place;
    bool is_made =
        layout_axis(axis, layout.ndim, &place, &fault) &&
        layout_repacked(&layout, itemsize, address, place, keep_axis, &layout, &fault);
    return layout_finish(op, function, is_made, &layout, &fault);
}

LAYOUT_DOC(
    max_compatible_itemsize,
    "max_compatible_itemsize($self, /, max_itemsize=16, data_ptr=0, axis=-1)\n--\n\n"
    "The largest itemsize that `repacked` takes, within a limit.\n\n"
    "Parameters\n----------\n"
    "max_itemsize : int, default 16\n"
    "    At least the present itemsize.\n"
    "data_ptr : int, default 0\n"
    "    The base's address, as in `repacked`.\n"
    "axis : int, default -1\n"
    "    The axis that would shrink.\n\n"
    "Returns\n-------\n"
    "int\n"
    "    The greatest common divisor of max_itemsize, data_ptr and, in bytes, the axis'\n"
    "    extent, the other strides and slice_offset; the present itemsize if `repacked` would\n"
    "    not take that, or the axis is empty or not of stride 1.\n\n"
    "Raises\n------\n"
    "ValueError\n    The axis is out of range, or max_itemsize less than the itemsize.\n\n");

ARGS_METHOD(layout_method_max_compatible_itemsize, op, "StridedLayout.max_compatible_itemsize",
            0, 3, 0, "max_itemsize", "data_ptr", "axis")
{
    strided_layout layout;
    int64_t max = 16, address = 0, given = -1;
    int axis;
    layout_fault fault;
    if (layout_read_int(function, "max_itemsize", values[0], &max) < 0 ||
        layout_read_int(function, "data_ptr", values[1], &address) < 0 ||
        layout_read_int(function, "axis", values[2], &given) < 0) {
        return NULL;
    }
    layout_read(op, &layout);
    if (max < layout.itemsize) {
        return PyErr_Format(PyExc_ValueError,
                            "%s: max_itemsize (%lld) is less than the itemsize (%lld).",
                            function, (long long)max, (long long)layout.itemsize);
    }
    if (!layout_axis(given, layout.ndim, &axis, &fault)) {
        return errors_from_layout(NULL, function, &fault);
    }
    return PyLong_FromLongLong(layout_max_itemsize(&layout, max, address, axis));
}
