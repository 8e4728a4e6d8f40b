/* array_sides.c: see array_sides.h.
 *
 * Owns:    nothing beyond a call: the buffer view or the Array that stands for the other side.
 * Calls:   array_map.h for the memory, copy.h for the moving, array_make.h for what else can be read.
 */
#include "array_sides.h"

#include "array_make.h"
#include "array_map.h"
#include "array_queue.h"
#include "copy.h"
#include "errors.h"
#include "layout_type.h"

/* ---- one side ---- */

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

int
array_side_open(array_side *side, md_state *state, PyObject *value, const import_request *request)
{
    if (Py_IS_TYPE(value, state->array_type)) {
        array_side_set(side, array_cast(value));
        return 0;
    }
    if (array_side_open_view(side, value)) {
        return 0;
    }
    PyObject *array = array_make_of(state, value, request);
    if (array == NULL) {
        return -1;
    }
    array_side_set(side, array_cast(array));
    side->kept = array;
    return 0;
}

/* ---- do the two fit? ---- */

static int
check_dtypes(const char *function, DLDataType dst, DLDataType src)
{
    if (dtype_equal(dst, src)) {
        return 0;
    }
    char from[DTYPE_NAME_MAX], to[DTYPE_NAME_MAX];
    dtype_write_name(src, from);
    dtype_write_name(dst, to);
    PyErr_Format(PyExc_TypeError,
                 "%s: items of %s cannot be copied to items of %s; a[...] = value converts.",
                 function, from, to);
    return -1;
}

static int
refuse_shapes(const char *function, const strided_layout *dst, const strided_layout *src)
{
    PyObject *from = layout_tuple(src->shape, src->ndim);
    PyObject *to = layout_tuple(dst->shape, dst->ndim);
    if (from != NULL && to != NULL) {
        PyErr_Format(PyExc_ValueError, "%s: a source of shape %R cannot be broadcast to shape %R.",
                     function, from, to);
    }
    Py_XDECREF(from);
    Py_XDECREF(to);
    return -1;
}

/* Give `src` the shape of `dst`; axes of extent 1 before the first may be too many, as in NumPy. */
static int
fit_shape(const char *function, const strided_layout *dst, array_side *src)
{
    strided_layout *layout = &src->layout;
    layout_fault fault;
    if (layout_same_shape(dst, layout)) {
        return 0;
    }
    strided_layout fitted;
    layout_copy(layout, &fitted);
    while (fitted.ndim > dst->ndim && fitted.shape[0] == 1) {
        layout_drop_axis(&fitted, 0);
    }
    if (!layout_broadcast(&fitted, dst->ndim, dst->shape, &fitted, &fault)) {
        return refuse_shapes(function, dst, layout);
    }
    layout_copy(&fitted, layout);
    return 0;
}

/* Packed sub-byte items move as bytes: both sides are compact, begin on a byte and have one shape. */
static void
count_in_bytes(array_side *side)
{
    int64_t nbytes = array_nbytes(side->array);
    side->layout = (strided_layout){.ndim = 1, .itemsize = 1};
    side->layout.shape[0] = nbytes;
    side->layout.strides[0] = 1;
}

static int
check_fit(const char *function, array_side *dst, array_side *src)
{
    if (dst->is_readonly) {
        PyErr_Format(PyExc_ValueError, "%s: the %s is read-only; write to a copy of it.", function,
                     dst->array != NULL ? "array" : "destination");
        return -1;
    }
    if (check_dtypes(function, dst->dtype, src->dtype) < 0) {
        return -1;
    }
    if (dtype_is_whole_bytes(dst->dtype)) {
        return fit_shape(function, &dst->layout, src);
    }
    if (!layout_same_shape(&dst->layout, &src->layout)) {
        return refuse_shapes(function, &dst->layout, &src->layout);
    }
    count_in_bytes(dst);
    count_in_bytes(src);
    return 0;
}

/* ---- the copy ---- */

static int
side_map(const char *function, array_side *side, map_access access, array_mapping *mapping)
{
    if (side->array != NULL) {
        return array_map(function, side->array, access, mapping);
    }
    *mapping = (array_mapping){.origin = side->origin};
    return 0;
}

static int
side_unmap(const char *function, array_side *side, array_mapping *mapping, bool is_written)
{
    return side->array == NULL ? 0 : array_unmap(function, side->array, mapping, is_written);
}

static bool
move_items(const array_side *dst, char *to, const array_side *src, const char *from)
{
    if (layout_volume(&dst->layout) < LARGE_COPY / dst->layout.itemsize) {
        return copy_strided(&dst->layout, to, &src->layout, from);
    }
    bool is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = copy_strided(&dst->layout, to, &src->layout, from);
    Py_END_ALLOW_THREADS
    return is_done;
}

/* The one entry: two sides that fit. */
static int
copy_sides(const char *function, array_side *dst, array_side *src)
{
    array_mapping to, from;
    if (layout_is_empty(&dst->layout)) {
        return 0;
    }
    if (side_map(function, src, MAP_READ, &from) < 0) {
        return -1;
    }
    if (side_map(function, dst, MAP_WRITE, &to) < 0) {
        (void)side_unmap(function, src, &from, false);
        return -1;
    }
    bool is_done = move_items(dst, to.origin, src, from.origin);
    (void)side_unmap(function, src, &from, false);
    int result = side_unmap(function, dst, &to, is_done);
    if (!is_done) {
        PyErr_NoMemory();
        return -1;
    }
    return result;
}

/* Somebody else's memory is complete on return: nobody there knows what to wait for. */
static bool
can_be_later(const array_side *dst, const metal_stream *stream)
{
    return stream != NULL && dst->array != NULL && dst->kept == NULL &&
           !layout_is_empty(&dst->layout);
}

int
array_sides_copy(const char *function, array_side *dst, array_side *src, metal_stream *stream)
{
    if (check_fit(function, dst, src) < 0) {
        return -1;
    }
    int is_queued = can_be_later(dst, stream) ? array_queue_copy(function, dst, src, stream) : 0;
    if (is_queued != 0) {
        return is_queued < 0 ? -1 : 0;
    }
    return copy_sides(function, dst, src);
}

int
array_copy_items(const char *function, ArrayObject *dst, ArrayObject *src)
{
    array_side to, from;
    array_side_set(&to, dst);
    array_side_set(&from, src);
    return array_sides_copy(function, &to, &from, NULL);
}
