/* layout_type_object.c: makes StridedLayouts from numbers, arguments and pickles, and keeps what is
 * asked of one; see layout_type_object.h. */
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
layout_tuple(const int64_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        state_fill_tuple(&tuple, i, PyLong_FromLongLong(values[i]));
    }
    return tuple;
}

bool
layout_answer(PyObject *op, uint32_t bit)
{
    LayoutObject *self = layout_cast(op);
    uint32_t kept = __atomic_load_n(&self->answers, __ATOMIC_RELAXED);
    if (kept & bit) {
        return kept >> 16 & bit;
    }
    strided_layout layout;
    layout_read(op, &layout);
    bool is_true = bit == ANSWER_CONTIGUOUS_C     ? layout_is_contiguous_c(&layout)
                   : bit == ANSWER_CONTIGUOUS_F   ? layout_is_contiguous_f(&layout)
                   : bit == ANSWER_CONTIGUOUS_ANY ? layout_is_contiguous_any(&layout)
                                                  : layout_is_unique(&layout);
    __atomic_fetch_or(&self->answers, bit | (is_true ? bit << 16 : 0), __ATOMIC_RELEASE);
    return is_true;
}

/* ---- StridedLayout(...) ---- */

/* Turn strides in bytes into strides in items. */
static int
divide_strides(int64_t *strides, int count, int64_t itemsize)
{
    for (int axis = 0; axis < count; axis++) {
        if (strides[axis] % itemsize != 0) {
            return errors_raise(PyExc_ValueError,
                                "StridedLayout: stride %lld of axis %d is not a multiple of "
                                "the itemsize (%lld bytes).",
                                (long long)strides[axis], axis, (long long)itemsize);
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
    bool fits = true;
    for (int axis = 0; axis < layout->ndim; axis++) {
        fits &= layout_multiply(layout->strides[axis], layout->itemsize, &nbytes);
    }
    return fits || layout_fail(fault, LAYOUT_FAULT_OVERFLOW, 0, 0);
}

static int
read_strides(PyObject *value, int ndim, int64_t itemsize, bool is_divided, int64_t *out)
{
    int count;
    if (args_int64s("StridedLayout", "strides", value, out, LAYOUT_MAX_NDIM, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        return errors_raise(PyExc_ValueError,
                            "StridedLayout: %d strides are given for %d extents.", count, ndim);
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

PyObject *
layout_object_from_values(PyTypeObject *type, PyObject *const *values, int64_t offset,
                          bool is_restored)
{
    strided_layout layout; /* its numbers are read in place */
    int64_t itemsize;
    int ndim, is_divided = 0;
    layout_fault fault;
    if (args_int64s("StridedLayout", "shape", values[0], layout.shape, LAYOUT_MAX_NDIM, &ndim) <
            0 ||
        args_int64("StridedLayout", "itemsize", values[2], &itemsize) < 0 ||
        (values[3] != NULL && (is_divided = PyObject_IsTrue(values[3])) < 0)) {
        return NULL;
    }
    if (itemsize < 1) { /* before strides are divided by it */
        (void)layout_fail(&fault, LAYOUT_FAULT_ITEMSIZE, itemsize, 0);
        return errors_from_layout(NULL, "StridedLayout", &fault);
    }
    if (values[1] == Py_None) {
        return new_implicit(type, ndim, layout.shape, itemsize);
    }
    if (read_strides(values[1], ndim, itemsize, is_divided, layout.strides) < 0) {
        return NULL;
    }
    if (!layout_set(&layout, ndim, layout.shape, layout.strides, itemsize, offset, &fault) ||
        (!is_restored && !check_strides(&layout, &fault))) {
        return errors_from_layout(NULL, "StridedLayout", &fault);
    }
    return layout_object_new(type, &layout);
}

/* ---- copies of the value ---- */

const char layout_doc_reduce[] = "__reduce__($self, /)\n--\n\n"
                                 "Pickle by shape, strides, itemsize and offset.";

PyObject *
layout_method_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *restore = PyObject_GetAttrString((PyObject *)Py_TYPE(op), "_restore");
    PyObject *shape = restore == NULL ? NULL : PyObject_GetAttrString(op, "shape");
    PyObject *strides = shape == NULL ? NULL : PyObject_GetAttrString(op, "strides");
    PyObject *result = NULL;
    if (strides != NULL) {
        result = Py_BuildValue("O(OOLL)", restore, shape, strides,
                               (long long)layout_cast(op)->itemsize,
                               (long long)layout_cast(op)->offset);
    }
    Py_XDECREF(restore);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return result;
}

const char layout_doc_restore[] =
    "_restore($type, shape, strides, itemsize, slice_offset, /)\n--\n\n"
    "The layout that pickle has taken apart.";

ARGS_METHOD(layout_method_restore, class, "StridedLayout._restore", 4, 4, 4, "shape", "strides",
            "itemsize", "slice_offset")
{
    int64_t offset;
    if (args_int64(function, "slice_offset", values[3], &offset) < 0) {
        return NULL;
    }
    values[3] = NULL; /* divide_strides */
    return layout_object_from_values((PyTypeObject *)class, values, offset, true);
}

const char layout_doc_copy[] = "__copy__($self, /)\n--\n\nThe layout itself: it cannot change.";

PyObject *
layout_method_copy(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(op);
}

const char layout_doc_deepcopy[] =
    "__deepcopy__($self, memo, /)\n--\n\nThe layout itself: it cannot change.";

PyObject *
layout_method_deepcopy(PyObject *op, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(op);
}
