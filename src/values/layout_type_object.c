/* layout_type_object.c: makes StridedLayouts, and reads what their methods are given; see
 * layout_type_object.h. */
#include "values/layout_type_object.h"

/* ---- making ---- */

PyObject *
layout_object_new(PyTypeObject *type, const strided_layout *layout)
{
    LayoutObject *self =
        layout_object_alloc(type, layout->ndim, layout->itemsize, layout->offset);
    if (self != NULL) {
        layout_copy_fresh(self->dims, layout->shape, layout->ndim);
        layout_copy_fresh(self->dims + self->capacity, layout->strides, layout->ndim);
    }
    return (PyObject *)self;
}

PyObject *
layout_type_new(md_state *state, const strided_layout *layout)
{
    return layout_object_new(state->layout_type, layout);
}

void
layout_type_get(PyObject *op, strided_layout *out)
{
    layout_read(op, out);
}

int
layout_read_ints(const char *function, const char *what, PyObject *value, int64_t *out,
                 int *count)
{
    if (layout_read_small_int(value, out)) {
        *count = 1;
        return 0;
    }
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) > LAYOUT_MAX_NDIM) {
        return args_int64s(function, what, value, out, LAYOUT_MAX_NDIM, count);
    }
    int nitems = (int)PyTuple_GET_SIZE(value);
    for (int i = 0; i < nitems; i++) {
        if (layout_read_int(function, what, PyTuple_GET_ITEM(value, i), &out[i]) < 0) {
            return -1;
        }
    }
    *count = nitems;
    return 0;
}

int
layout_read_axes(const char *function, const char *what, PyObject *value, int ndim, int *axes)
{
    int64_t given[LAYOUT_MAX_NDIM];
    int count;
    if (layout_read_ints(function, what, value, given, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d entries for %d dimensions.", function,
                     what, count, ndim);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        axes[i] = (int)given[i];
        if ((given[i] < 0 || given[i] >= ndim) &&
            args_axis(function, given[i], ndim, &axes[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- StridedLayout(...) ---- */

/* Strides given in bytes, as items. */
static int
divide_strides(int64_t *strides, int count, int64_t itemsize)
{
    for (int axis = 0; axis < count; axis++) {
        if (strides[axis] % itemsize != 0) {
            PyErr_Format(
                PyExc_ValueError,
                "StridedLayout: stride %lld of axis %d is not a multiple of the itemsize "
                "(%lld bytes).",
                (long long)strides[axis], axis, (long long)itemsize);
            return -1;
        }
        strides[axis] /= itemsize;
    }
    return 0;
}

/* Every stride can be counted in bytes, also of an axis that takes no step. */
static bool
check_strides(const strided_layout *layout, layout_fault *fault)
{
    int64_t nbytes;
    if (layout_magnitude(layout->strides, layout->ndim) < 1 << 23 &&
        layout->itemsize < 1 << 23) {
        return true;
    }
    for (int axis = 0; axis < layout->ndim; axis++) {
        if (!layout_multiply(layout->strides[axis], layout->itemsize, &nbytes)) {
            return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
        }
    }
    return true;
}

static int
read_strides(PyObject *value, int ndim, int64_t itemsize, bool is_divided, int64_t *out)
{
    int count;
    if (layout_read_ints("StridedLayout", "strides", value, out, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "StridedLayout: %d strides are given for %d extents.",
                     count, ndim);
        return -1;
    }
    return is_divided ? divide_strides(out, count, itemsize) : 0;
}

/* C order, whose strides are 0 if there are no items. */
static PyObject *
new_implicit(PyTypeObject *type, int ndim, const int64_t *shape, int64_t itemsize)
{
    strided_layout layout;
    layout_fault fault;
    if (!layout_set_dense(&layout, ndim, shape, itemsize, 'C', &fault)) {
        return errors_from_layout(NULL, "StridedLayout", &fault);
    }
    if (layout_is_empty(&layout)) {
        layout_clear_strides(&layout);
    }
    PyObject *op = layout_object_new(type, &layout);
    if (op != NULL) {
        layout_cast(op)->is_implicit = true;
    }
    return op;
}

/* Two tuples of one length, of small ints, read in one pass into `dims`, extents and strides
 * apart by LAYOUT_FEW.  False: something else, or numbers large enough to need the checks of
 * layout_set: no exception is set. */
static inline bool
read_few(PyObject *shape, PyObject *strides, int ndim, int64_t itemsize, int64_t *dims)
{
    uint64_t most = 0;
    int bits = 64 - __builtin_clzll((uint64_t)itemsize); /* of all items, at most */
    for (int i = 0; i < ndim; i++) {
        int64_t extent, stride;
        if (!layout_read_small_int(PyTuple_GET_ITEM(shape, i), &extent) ||
            !layout_read_small_int(PyTuple_GET_ITEM(strides, i), &stride)) {
            return false;
        }
        dims[i] = extent;
        dims[LAYOUT_FEW + i] = stride;
        most |= (uint64_t)extent | (uint64_t)(stride ^ stride >> 63);
        bits += 64 - __builtin_clzll((uint64_t)extent | 1);
    }
    /* 8 axes of 2^23 steps of 2^23 items of 2^7 bytes fit; a negative extent is not small. */
    return most < 1 << 23 && itemsize <= 1 << 7 && bits < 63;
}

/* The layout of most calls, without the copies between the steps: owned (+1).  NULL without an
 * exception: not such a call; with one: no memory. */
static inline PyObject *
new_of_few(PyTypeObject *type, PyObject *shape, PyObject *strides, int64_t itemsize,
           int64_t offset)
{
    if (!PyTuple_CheckExact(shape) || !PyTuple_CheckExact(strides) || offset != 0 ||
        PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides) ||
        PyTuple_GET_SIZE(shape) > LAYOUT_FEW) {
        return NULL;
    }
    int ndim = (int)PyTuple_GET_SIZE(shape);
    LayoutObject *self = layout_object_alloc(type, ndim, itemsize, 0);
    if (self != NULL && !read_few(shape, strides, ndim, itemsize, self->dims)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *
layout_object_from_values(PyTypeObject *type, PyObject *const *values, int64_t offset)
{
    int64_t shape[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM], itemsize;
    int ndim, is_divided = 0;
    strided_layout layout;
    layout_fault fault;
    if (values[3] == NULL && layout_read_small_int(values[2], &itemsize) && itemsize > 0) {
        PyObject *op = new_of_few(type, values[0], values[1], itemsize, offset);
        if (op != NULL || PyErr_Occurred()) {
            return op;
        }
    }
    if (layout_read_ints("StridedLayout", "shape", values[0], shape, &ndim) < 0 ||
        layout_read_int("StridedLayout", "itemsize", values[2], &itemsize) < 0 ||
        (values[3] != NULL && (is_divided = PyObject_IsTrue(values[3])) < 0)) {
        return NULL;
    }
    if (itemsize < 1) { /* before strides are divided by it */
        (void)layout_fail(&fault, LAYOUT_FAULT_ITEMSIZE, itemsize, 0);
        return errors_from_layout(NULL, "StridedLayout", &fault);
    }
    if (values[1] == Py_None) {
        return new_implicit(type, ndim, shape, itemsize);
    }
    if (read_strides(values[1], ndim, itemsize, is_divided, strides) < 0) {
        return NULL;
    }
    if (!layout_set(&layout, ndim, shape, strides, itemsize, offset, &fault) ||
        !check_strides(&layout, &fault)) {
        return errors_from_layout(NULL, "StridedLayout", &fault);
    }
    return layout_object_new(type, &layout);
}
