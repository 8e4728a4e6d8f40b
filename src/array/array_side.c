/* array_side.c: see array_side.h. */
#include "array/array_side.h"

void
array_side_close(array_side *side)
{
    Py_CLEAR(side->kept);
    if (side->view.obj != NULL) {
        PyBuffer_Release(&side->view);
    }
}

void
array_side_set(array_side *side, ArrayObject *array)
{
    side->array = array;
    side->kept = NULL;
    side->view.obj = NULL;
    side->dtype = array->dtype;
    side->is_readonly = array->is_readonly;
    array_get_layout(array, &side->layout);
}

/* The layout of a buffer view; false where it has none in items. */
static bool
layout_of_view(const Py_buffer *view, strided_layout *out)
{
    int64_t strides[LAYOUT_MAX_NDIM];
    layout_fault fault;
    if (view->ndim > LAYOUT_MAX_NDIM) {
        return false;
    }
    for (int axis = 0; axis < view->ndim; axis++) {
        if (view->strides[axis] % view->itemsize != 0) {
            return false;
        }
        strides[axis] = view->strides[axis] / view->itemsize;
    }
    return layout_set(out, view->ndim, (const int64_t *)view->shape, strides, view->itemsize, 0,
                      &fault);
}

bool
array_side_open_view(array_side *side, PyObject *value)
{
    if (!PyObject_CheckBuffer(value)) {
        return false;
    }
    if (PyObject_GetBuffer(value, &side->view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear(); /* NumPy's arrays of element types that the protocol cannot name */
        side->view.obj = NULL;
        return false;
    }
    if (side->view.suboffsets != NULL || side->view.itemsize == 0 ||
        !dtype_from_buffer_format(side->view.format, side->view.itemsize, &side->dtype) ||
        !layout_of_view(&side->view, &side->layout)) {
        PyBuffer_Release(&side->view);
        return false;
    }
    side->array = NULL;
    side->kept = NULL;
    side->origin = side->view.buf;
    side->is_readonly = side->view.readonly;
    return true;
}
