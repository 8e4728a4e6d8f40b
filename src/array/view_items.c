/* view_items.c: see view_items.h. */
#include "array/view_items.h"

#include "python/errors.h"

/* ---- opening ---- */

/* The strides of C order, which the protocol lets an exporter leave out.  Wraps round where the
 * items reach too far; layouts refuse those. */
static void
add_strides(foreign_view *view)
{
    size_t step = (size_t)view->memory.itemsize;
    for (int axis = view->memory.ndim - 1; axis >= 0; axis--) {
        view->strides[axis] = (Py_ssize_t)step;
        step *= (size_t)view->memory.shape[axis];
    }
    view->memory.strides = view->strides;
}

int
view_open(const char *function, PyObject *op, foreign_view *out)
{
    if (PyObject_GetBuffer(op, &out->memory, PyBUF_FULL_RO) < 0) {
        out->memory.obj = NULL;
        return -1;
    }
    if (out->memory.ndim > LAYOUT_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError,
                     "%s: the memory of %.100s has %d axes; at most %d are possible.", function,
                     Py_TYPE(op)->tp_name, out->memory.ndim, LAYOUT_MAX_NDIM);
        view_close(out);
        return -1;
    }
    if (out->memory.strides == NULL) {
        add_strides(out);
    }
    return 0;
}

int
view_open_bytes(PyObject *op, bool is_writable, foreign_view *out)
{
    int result =
        PyObject_GetBuffer(op, &out->memory, is_writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO);
    if (result < 0) {
        out->memory.obj = NULL;
    }
    return result;
}

void
view_close(foreign_view *view)
{
    /* mutant survives (condition always): no exporter here looks at them */
    if (view->memory.strides == view->strides) {
        view->memory.strides = NULL; /* the exporter gets back what it gave */
    }
    PyBuffer_Release(&view->memory);
}

PyObject *
view_keep(PyObject *op, const Py_buffer **out)
{
    /* CPython refuses more axes than its PyBUF_MAX_NDIM, which is LAYOUT_MAX_NDIM, and adds strides */
    _Static_assert(PyBUF_MAX_NDIM <= LAYOUT_MAX_NDIM,
                   "a memoryview has more axes than a layout");
    PyObject *memory = PyMemoryView_FromObject(op);
    *out = memory == NULL ? NULL : PyMemoryView_GET_BUFFER(memory);
    return memory;
}

/* ---- items ---- */

/* Strides in bytes as strides in items.  Where no step is taken they need not be whole items,
 * as in NumPy's own export. */
static int
divide_strides(const char *function, const Py_buffer *view, int64_t *out)
{
    for (int axis = 0; axis < view->ndim; axis++) {
        bool is_stepped = view->len > 0 && view->shape[axis] > 1;
        if (is_stepped && view->strides[axis] % view->itemsize != 0) {
            return errors_raise(PyExc_ValueError,
                                "%s: stride %zd of axis %d is not a multiple of the itemsize "
                                "(%zd bytes); copy it first.",
                                function, view->strides[axis], axis, view->itemsize);
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
    return errors_raise(PyExc_ValueError,
                        "%s: the buffer's format '%s' is structured, of non-native byte order, "
                        "or unknown; convert it first.",
                        function, view->format == NULL ? "B" : view->format);
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
    if (divide_strides(function, view, strides) < 0) {
        return -1;
    }
    if (!layout_set(layout, view->ndim, (const int64_t *)view->shape, strides, view->itemsize,
                    0, &fault)) {
        /* unreached: no test makes it fail here */
        (void)errors_from_layout(state, function, &fault);
        return -1;
    }
    return 0;
}
