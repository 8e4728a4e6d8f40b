/* view_items.c: see view_items.h. */
#include "array/view_items.h"

#include "python/errors.h"

/* Strides in bytes as strides in items.  Where no step is taken they need not be whole items,
 * as in NumPy's own export. */
static int
divide_strides(const char *function, const Py_buffer *view, int64_t *out)
{
    for (int axis = 0; axis < view->ndim; axis++) {
        bool is_stepped = view->len > 0 && view->shape[axis] > 1;
        if (is_stepped && view->strides[axis] % view->itemsize != 0) {
            PyErr_Format(PyExc_ValueError,
                         "%s: stride %zd of axis %d is not a multiple of the itemsize "
                         "(%zd bytes); copy it first.",
                         function, view->strides[axis], axis, view->itemsize);
            return -1;
        }
        out[axis] = view->strides[axis] / view->itemsize;
    }
    return 0;
}

int
view_items_dtype(const char *function, const Py_buffer *view, DLDataType *out)
{
    if (dtype_from_buffer_format(view->format, view->itemsize, out)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "%s: the buffer's format '%s' is structured, of non-native byte "
                 "order, or unknown; convert it first.",
                 function, view->format == NULL ? "B" : view->format);
    return -1;
}

int
view_items_read(md_state *state, const char *function, const Py_buffer *view, DLDataType *dtype,
                strided_layout *layout)
{
    int64_t strides[LAYOUT_MAX_NDIM];
    layout_fault fault;
    if (view_items_dtype(function, view, dtype) < 0) {
        return -1;
    }
    if (view->ndim > LAYOUT_MAX_NDIM) {
        (void)layout_fail(&fault, LAYOUT_FAULT_NDIM, view->ndim, 0);
        (void)errors_from_layout(state, function, &fault);
        return -1;
    }
    if (divide_strides(function, view, strides) < 0) {
        return -1;
    }
    if (!layout_set(layout, view->ndim, (const int64_t *)view->shape, strides, view->itemsize,
                    0, &fault)) {
        (void)errors_from_layout(state, function, &fault);
        return -1;
    }
    return 0;
}
