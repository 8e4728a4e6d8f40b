/* array_assign.c: numbers into Arrays: fill and a[key] = value.
 *
 * Calls:   array_copy.h for copies, copy.h for fills, NumPy for conversions between element
 *          types.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "array/array_copy.h"

#include <string.h>

#include "array/array_map.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "copy/copy.h"
#include "python/args.h"
#include "python/element.h"
#include "python/errors.h"
#include "streams/stream_object.h"
#include "values/layout_type_object.h"

/* ---- one value everywhere ---- */

static void
fill_items(const ArrayObject *self, const strided_layout *layout, char *origin,
           const char *item)
{
    bits_items bits = {layout, origin, self->first_bit, self->dtype, false};
    if (array_is_packed(self)) {
        bits_fill(&bits, item);
    }
    else if (self->nitems == 1) { /* a[1, 2] = 3.0: no plan is worth its making */
        memcpy(origin, item, (size_t)layout->itemsize);
    }
    else {
        copy_fill(layout, origin, item);
    }
}

static int
fill_with(const char *function, ArrayObject *self, const char *item)
{
    array_mapping mapping;
    strided_layout layout;
    if (array_map(function, self, MAP_OVERWRITE, &mapping) < 0) {
        return -1;
    }
    array_get_layout(self, &layout);
    if (array_nbytes(self) >= LARGE_COPY) {
        Py_BEGIN_ALLOW_THREADS
        fill_items(self, &layout, mapping.origin, item);
        Py_END_ALLOW_THREADS
    }
    /* mutant survives (condition always): filling nothing does nothing */
    else if (self->nitems > 0) {
        fill_items(self, &layout, mapping.origin, item);
    }
    return array_unmap(function, self, &mapping, true);
}

int
array_fill(const char *function, ArrayObject *self, PyObject *value, metal_stream *stream)
{
    char small[64];
    int64_t itemsize = dtype_itemsize(self->dtype);
    char *item = itemsize <= (int64_t)sizeof small ? small : PyMem_Malloc((size_t)itemsize);
    if (item == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = element_pack(function, self->dtype, value, item);
    int is_queued = 0;
    if (result == 0 && !self->is_readonly && !array_is_packed(self) && self->nitems > 0) {
        is_queued = array_queue_fill(function, self, item, stream);
        result = is_queued < 0 ? -1 : 0;
    }
    if (result == 0 && is_queued == 0) {
        result = fill_with(function, self, item);
    }
    if (item != small) {
        PyMem_Free(item);
    }
    return result;
}

const char array_doc_fill[] =
    "fill($self, value, /, *, stream=None)\n--\n\n"
    "Write one number into every item.\n\n"
    "Parameters\n----------\n"
    "value : bool, int, float or complex\n"
    "stream : Stream or int, optional\n"
    "    The stream that does it, later, as in copy_from; default: that of `with stream:`.\n\n"
    "Raises\n------\n"
    "TypeError\n    The value is not a number of the element's kind.\n"
    "OverflowError\n    An integer does not fit the element type.\n"
    "ValueError\n    The array is read-only.";

ARGS_METHOD(array_method_fill, op, "Array.fill", 1, 1, 1, "value", "stream")
{
    metal_stream *stream;
    if (stream_convert_target(state_of(op), function, values[1], &stream) < 0) {
        return NULL;
    }
    int result = array_fill(function, array_cast(op), values[0], stream);
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- a[key] = value ---- */

/* A source that the engine can take as it stands: an Array or CPU memory of the same element
 * type. */
static bool
side_open_same(array_side *side, const ArrayObject *dst, PyObject *value)
{
    md_state *state = state_of((PyObject *)dst);
    if (Py_IS_TYPE(value, state->array_type)) {
        array_side_set(side, array_cast(value));
    }
    else if (!array_side_open_view(side, state, value)) {
        return false;
    }
    if (dtype_equal(side->dtype, dst->dtype)) {
        return true;
    }
    array_side_close(side);
    return false;
}

static int
assign(ArrayObject *dst, PyObject *value)
{
    const char *function = "Array.__setitem__";
    if (dst->is_readonly) {
        return errors_raise(PyExc_ValueError,
                            "%s: the array is read-only; write to a copy() of it.", function);
    }
    bool is_scalar = PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
                     PyBool_Check(value) || PyComplex_CheckExact(value) ||
                     (dst->dtype.lanes > 1 && PyTuple_CheckExact(value)); /* one item's lanes */
    if (is_scalar) {
        return array_fill(function, dst, value, NULL);
    }
    array_side to, from;
    metal_stream *stream;
    if (!side_open_same(&from, dst, value)) {
        return array_numpy_assign(function, dst, value);
    }
    array_side_set(&to, dst);
    int result = stream_convert_target(state_of((PyObject *)dst), function, NULL, &stream);
    if (result == 0) {
        result = array_copy_sides(function, &to, &from, stream);
        stream_release(stream);
    }
    array_side_close(&from);
    return result;
}

int
array_assign_subscript(PyObject *op, PyObject *key, PyObject *value)
{
    if (value == NULL) {
        return errors_raise(
            PyExc_TypeError,
            "Items of an Array cannot be deleted: its shape is fixed; copy those that stay.");
    }
    if (key == Py_Ellipsis) {
        return assign(array_cast(op), value);
    }
    strided_layout in, out; /* not by array_subscript: packed items are written on any bit */
    array_get_layout(array_cast(op), &in);
    if (layout_index(state_of(op), "Array", key, &in, &out) < 0) {
        return -1;
    }
    PyObject *view = array_view_bits(array_cast(op), &out);
    if (view == NULL) {
        return -1;
    }
    int result = assign(array_cast(view), value);
    Py_DECREF(view);
    return result;
}
