/* array_copy.c: items in and out of Arrays: copy_from, copy_to, copy, fill and a[key] = value.
 *
 * Calls:   array_sides.h for copies, copy.h for fills, NumPy for conversions between element types.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "python/args.h"
#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "array/array_queue.h"
#include "array/array_sides.h"
#include "copy/copy.h"
#include "python/element.h"
#include "values/layout_type.h"
#include "python/storage_mode.h"

/* ---- copy_from, copy_to ---- */

const char array_doc_copy_from[] =
    "copy_from($self, src, /, stream=None)\n--\n\n"
    "Write the items of `src` into this array.\n\n"
    "Parameters\n----------\n"
    "src : Array, or what speaks DLPack or the buffer protocol\n"
    "    Of the same element type; broadcast to the shape of this array.  It may overlap this\n"
    "    array: the result is as if it had been read whole first.\n"
    "stream : Stream or int, optional\n"
    "    Who does it, later; default: the `with stream:` of the thread.  See below.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type: a[...] = src converts.\n"
    "ValueError\n    The shape does not fit, or this array is read-only.\n"
    "MemoryError, MetalError\n\n"
    "Any storage on either side.  Nothing is written where it raises TypeError or ValueError.\n"
    "Without a stream it returns when nobody can see that it is not done; the GIL is released for\n"
    "large copies, which may use several threads: set_num_threads().  With one it returns at once,\n"
    "and whoever reads or writes the buffers through this package comes after it; a source in CPU\n"
    "memory is read before the return.";

PyObject *
array_method_copy_from(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy_from", 1, 2, 1, {"src", "stream", NULL}};
    static const import_request as_it_is = {.copy = -1};
    PyObject *values[2];
    metal_stream *stream;
    array_side to, from;
    array_side_set(&to, array_cast(op));
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        stream_convert_target(state_of(op), "Array.copy_from", values[1], &stream) < 0) {
        return NULL;
    }
    int result = array_side_open(&from, state_of(op), values[0], &as_it_is);
    if (result == 0) {
        result = array_sides_copy("Array.copy_from", &to, &from, stream);
        array_side_close(&from);
    }
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char array_doc_copy_to[] =
    "copy_to($self, dst, /, stream=None)\n--\n\n"
    "Write the items of this array into `dst`.\n\n"
    "Parameters\n----------\n"
    "dst : Array, or what lends its memory by DLPack or the buffer protocol\n"
    "    Writable, of the same element type; this array is broadcast to its shape.\n"
    "stream : Stream or int, optional\n"
    "    As in copy_from; only an Array is written later.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type.\n"
    "ValueError\n    The shape does not fit, or `dst` is read-only.\n"
    "CopyRequiredError\n    The memory of `dst` cannot be shared, so that nothing could be written to it.\n"
    "MemoryError, MetalError\n\n"
    "Otherwise as copy_from().";

PyObject *
array_method_copy_to(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy_to", 1, 2, 1, {"dst", "stream", NULL}};
    static const import_request shared = {.copy = 0};
    PyObject *values[2];
    metal_stream *stream;
    array_side to, from;
    array_side_set(&from, array_cast(op));
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        stream_convert_target(state_of(op), "Array.copy_to", values[1], &stream) < 0) {
        return NULL;
    }
    int result = array_side_open(&to, state_of(op), values[0], &shared);
    if (result == 0) {
        result = array_sides_copy("Array.copy_to", &to, &from, stream);
        array_side_close(&to);
    }
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- copies in memory of their own ---- */

static PyObject *
copied_on(ArrayObject *self, char order, bridge_storage mode, bool is_padded, metal_stream *stream)
{
    PyObject *op = array_allocate_padded(state_of((PyObject *)self), "Array.copy",
                                         array_storage(self)->device, mode, self->ndim,
                                         array_shape(self), self->dtype, order, is_padded);
    if (op == NULL) {
        return NULL;
    }
    array_side to, from;
    array_side_set(&to, array_cast(op));
    array_side_set(&from, self);
    if (array_sides_copy("Array.copy", &to, &from, stream) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

PyObject *
array_copied(ArrayObject *self, char order, bridge_storage mode)
{
    return copied_on(self, order, mode, self->is_padded, NULL);
}

PyObject *
array_copied_padded(ArrayObject *self, char order, bridge_storage mode, bool is_padded)
{
    return copied_on(self, order, mode, is_padded, NULL);
}

static int
convert_order(ArrayObject *self, PyObject *value, char *out)
{
    *out = 'C';
    if (value == NULL) {
        return 0;
    }
    const char *name = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
    if (name == NULL || name[0] == '\0' || name[1] != '\0' || strchr("CFKA", name[0]) == NULL) {
        PyErr_Format(PyExc_ValueError, "Array.copy: order (%R) must be 'C', 'F', 'A' or 'K'.",
                     value);
        return -1;
    }
    if (name[0] == 'C' || name[0] == 'F') {
        *out = name[0];
        return 0;
    }
    strided_layout layout; /* 'A' and 'K': keep Fortran order where the source has it */
    array_get_layout(self, &layout);
    *out = layout_is_contiguous_f(&layout) && !layout_is_contiguous_c(&layout) ? 'F' : 'C';
    return 0;
}

const char array_doc_copy[] =
    "copy($self, /, order='C', storage=None, *, stream=None, padded=None)\n--\n\n"
    "The items in memory of their own, on the same device.\n\n"
    "Parameters\n----------\n"
    "order : {'C', 'F', 'A', 'K'}\n"
    "    'A' and 'K' keep Fortran order where the source has it, else C.\n"
    "storage : {'shared', 'managed', 'private'}, optional\n"
    "    Default: the storage of this array.\n"
    "stream : Stream or int, optional\n"
    "    Who does it, later, as in copy_from; default: the `with stream:` of the thread.\n"
    "padded : bool, optional\n"
    "    Sub-byte items: True gives each a byte, False packs them; default: as they are here.\n\n"
    "Returns\n-------\nArray\n    Writable; without a stream the copy is complete.\n\n"
    "Raises\n------\nMemoryError, MetalError";

PyObject *
array_method_copy(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy", 0, 2, 0, {"order", "storage", "stream", "padded", NULL}};
    ArrayObject *self = array_cast(op);
    PyObject *values[4];
    metal_stream *stream;
    char order;
    int padded;
    bridge_storage mode = array_storage(self)->mode;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_order(self, values[0], &order) < 0 ||
        args_tristate("Array.copy", "padded", values[3], &padded) < 0 ||
        (padded == 1 && array_check_padding("Array.copy", self->dtype) < 0)) {
        return NULL;
    }
    if (values[1] != NULL && values[1] != Py_None &&
        storage_mode_convert(state_of(op), "Array.copy", values[1], NULL, &mode) < 0) {
        return NULL;
    }
    if (stream_convert_target(state_of(op), "Array.copy", values[2], &stream) < 0) {
        return NULL;
    }
    bool is_padded = padded < 0 ? self->is_padded : padded && !dtype_is_whole_bytes(self->dtype);
    PyObject *result = copied_on(self, order, mode, is_padded, stream);
    stream_release(stream);
    return result;
}

const char array_doc_copy_copy[] =
    "__copy__($self, /)\n--\n\nA copy, as copy() makes it: views are made by indexing.";

PyObject *
array_method_copy_copy(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return array_copied(array_cast(op), 'C', array_storage(array_cast(op))->mode);
}

const char array_doc_deepcopy[] = "__deepcopy__($self, memo, /)\n--\n\nA copy, as copy() makes it.";

PyObject *
array_method_deepcopy(PyObject *op, PyObject *Py_UNUSED(memo))
{
    return array_copied(array_cast(op), 'C', array_storage(array_cast(op))->mode);
}

/* ---- one value everywhere ---- */

static void
fill_items(const ArrayObject *self, const strided_layout *layout, char *origin, const char *item)
{
    bits_items bits = {layout, origin, self->first_bit, self->dtype, false};
    if (array_is_packed(self)) {
        bits_fill(&bits, item);
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
    if (mapping.nbytes >= LARGE_COPY) {
        Py_BEGIN_ALLOW_THREADS
        fill_items(self, &layout, mapping.origin, item);
        Py_END_ALLOW_THREADS
    }
    else if (mapping.nbytes > 0) {
        fill_items(self, &layout, mapping.origin, item);
    }
    return array_unmap(function, self, &mapping, true);
}

static int
fill_on(const char *function, ArrayObject *self, PyObject *value, metal_stream *stream)
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

int
array_fill(const char *function, ArrayObject *self, PyObject *value)
{
    return fill_on(function, self, value, NULL);
}

const char array_doc_fill[] =
    "fill($self, value, /, *, stream=None)\n--\n\n"
    "Write one number into every item.\n\n"
    "Parameters\n----------\n"
    "value : bool, int, float or complex\n"
    "stream : Stream or int, optional\n"
    "    Who does it, later, as in copy_from; default: the `with stream:` of the thread.\n\n"
    "Raises\n------\n"
    "TypeError\n    The value is not a number of the element's kind.\n"
    "OverflowError\n    An integer does not fit the element type.\n"
    "ValueError\n    The array is read-only.";

PyObject *
array_method_fill(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.fill", 1, 1, 1, {"value", "stream", NULL}};
    PyObject *values[2];
    metal_stream *stream;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        stream_convert_target(state_of(op), "Array.fill", values[1], &stream) < 0) {
        return NULL;
    }
    int result = fill_on("Array.fill", array_cast(op), values[0], stream);
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- a[key] = value ---- */

/* A source that the engine can take as it stands: an Array or CPU memory of the same element type. */
static bool
side_open_same(array_side *side, const ArrayObject *dst, PyObject *value)
{
    if (Py_IS_TYPE(value, state_of((PyObject *)dst)->array_type)) {
        array_side_set(side, array_cast(value));
    }
    else if (!array_side_open_view(side, value)) {
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
        PyErr_Format(PyExc_ValueError, "%s: the array is read-only; write to a copy() of it.",
                     function);
        return -1;
    }
    bool is_scalar = PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
                     PyBool_Check(value) || PyComplex_CheckExact(value) ||
                     (dst->dtype.lanes > 1 && PyTuple_CheckExact(value)); /* one item's lanes */
    if (is_scalar) {
        return array_fill(function, dst, value);
    }
    array_side to, from;
    metal_stream *stream;
    if (!side_open_same(&from, dst, value)) {
        return array_numpy_assign(function, dst, value);
    }
    array_side_set(&to, dst);
    int result = stream_convert_target(state_of((PyObject *)dst), function, NULL, &stream);
    if (result == 0) {
        result = array_sides_copy(function, &to, &from, stream);
        stream_release(stream);
    }
    array_side_close(&from);
    return result;
}

int
array_assign_subscript(PyObject *op, PyObject *key, PyObject *value)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_TypeError, "Items of an Array cannot be deleted.");
        return -1;
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
