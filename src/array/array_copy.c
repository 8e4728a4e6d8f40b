/* array_copy.c: see array_copy.h; and the methods that copy to memory of their own.
 *
 * Owns:    nothing beyond a call: the buffer view or the Array that stands for the other side.
 * Calls:   array_queue.h where the GPU copies, array_map.h and copy.h where the CPU does.
 */
#include "array/array_copy.h"

#include <stdlib.h>
#include <string.h>

#include "array/array_map.h"
#include "array/array_methods.h"
#include "copy/copy.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "streams/stream_object.h"
#include "values/layout_type_object.h"

/* ---- one side ---- */

void
array_side_set(array_side *side, ArrayObject *array)
{
    side->array = array;
    side->kept = NULL;
    side->view.memory.obj = NULL;
    side->dtype = array->dtype;
    side->first_bit = array->first_bit;
    side->is_padded = array->is_padded;
    side->is_readonly = array->is_readonly;
    array_get_layout(array, &side->layout);
}

void
array_side_close(array_side *side)
{
    Py_CLEAR(side->kept);
    view_close(&side->view);
}

bool
array_side_open_view(array_side *side, md_state *state, PyObject *value)
{
    const Py_buffer *memory = &side->view.memory;
    side->view.memory.obj = NULL;
    if (!PyObject_CheckBuffer(value)) {
        return false;
    }
    if (view_open("", value, &side->view) < 0 || memory->suboffsets != NULL ||
        memory->itemsize == 0 ||
        view_items_read(state, "", memory, &side->dtype, &side->layout) < 0) {
        PyErr_Clear(); /* whoever asks has another way, which says what is wrong */
        view_close(&side->view);
        return false;
    }
    side->array = NULL;
    side->kept = NULL;
    side->origin = memory->buf;
    side->first_bit = 0;
    side->is_padded = false;
    side->is_readonly = memory->readonly;
    return true;
}

/* ---- do the two fit? ---- */

static int
check_dtypes(const char *function, DLDataType dst, DLDataType src)
{
    if (dtype_equal(dst, src)) {
        return 0;
    }
    return errors_raise(
        PyExc_TypeError,
        "%s: items of %s cannot be copied to items of %s; a[...] = value converts.", function,
        dtype_name(src).text, dtype_name(dst).text);
}

static int
refuse_shapes(const char *function, const strided_layout *dst, const strided_layout *src)
{
    PyObject *from = layout_tuple(src->shape, src->ndim);
    PyObject *to = layout_tuple(dst->shape, dst->ndim);
    if (from != NULL && to != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "%s: a source of shape %R cannot be broadcast to shape %R.", function,
                     from, to);
    }
    Py_XDECREF(from);
    Py_XDECREF(to);
    return -1;
}

/* Give `src` the shape of `dst`; axes of extent 1 before the first may be too many, as in
 * NumPy. */
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

static int
check_fit(const char *function, array_side *dst, array_side *src)
{
    if (dst->is_readonly) {
        return errors_raise(PyExc_ValueError, "%s: the %s is read-only; write to a copy of it.",
                            function, dst->array != NULL ? "array" : "destination");
    }
    if (check_dtypes(function, dst->dtype, src->dtype) < 0) {
        return -1;
    }
    return fit_shape(function, &dst->layout, src);
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
is_packed(const array_side *side)
{
    return !side->is_padded && !dtype_is_whole_bytes(side->dtype);
}

/* Express two packed layouts of one shape in bytes: as one run, or row by row. */
static bool
layouts_of_bytes(const strided_layout *dst, const strided_layout *src, int64_t item_bits,
                 strided_layout *to, strided_layout *from)
{
    layout_fault fault;
    int64_t nbits;
    bool is_whole = layout_is_contiguous_c(dst) && layout_is_contiguous_c(src) &&
                    layout_multiply(layout_volume(dst), item_bits, &nbits) && nbits % 8 == 0;
    if (is_whole) {
        int64_t nbytes = nbits / 8;
        return layout_set_dense(to, 1, &nbytes, 1, 'C', &fault) &&
               layout_set_dense(from, 1, &nbytes, 1, 'C', &fault);
    }
    return bits_as_bytes(dst, item_bits, to) && bits_as_bytes(src, item_bits, from);
}

/* Packed items that lie in whole bytes on both sides move as these: the layouts become
 * theirs.  True: they do not, and each item is moved by itself. */
static bool
must_move_bits(array_side *dst, array_side *src)
{
    strided_layout to, from;
    if (!is_packed(dst) && !is_packed(src)) {
        return false;
    }
    /* mutant survives (condition always): bit by bit: only slower */
    if (!is_packed(dst) || !is_packed(src) || dst->first_bit != 0 || src->first_bit != 0 ||
        !layouts_of_bytes(&dst->layout, &src->layout, dtype_item_bits(dst->dtype), &to,
                          &from)) {
        return true;
    }
    layout_copy(&to, &dst->layout);
    layout_copy(&from, &src->layout);
    return false;
}

static bits_items
bits_of(const array_side *side, char *origin)
{
    return (bits_items){&side->layout, origin, side->first_bit, side->dtype, side->is_padded};
}

static bool
may_overlap(const bits_items *dst, const bits_items *src)
{
    int64_t to, to_end, from, from_end;
    (void)bits_byte_span(dst->layout, dtype_step_bits(dst->dtype, dst->is_padded),
                         dst->first_bit, &to, &to_end); /* in bounds, both */
    (void)bits_byte_span(src->layout, dtype_step_bits(src->dtype, src->is_padded),
                         src->first_bit, &from, &from_end);
    return dst->base + to < src->base + from_end && src->base + from < dst->base + to_end;
}

/* Item by item; by way of memory of its own where the two may share some. */
static bool
move_bits(const bits_items *dst, const bits_items *src)
{
    strided_layout dense;
    layout_fault fault;
    if (!may_overlap(dst, src)) {
        bits_copy(dst, src);
        return true;
    }
    if (!layout_set_dense(&dense, src->layout->ndim, src->layout->shape, 1, 'C', &fault)) {
        return false;
    }
    char *between = calloc((size_t)layout_volume(&dense), (size_t)dtype_itemsize(src->dtype));
    if (between == NULL) {
        return false;
    }
    bits_items copy = {&dense, between, 0, src->dtype, false};
    bits_copy(&copy, src);
    bits_copy(dst, &copy);
    free(between);
    return true;
}

static bool
move_nogil(const array_side *dst, char *to, const array_side *src, char *from, bool is_bits)
{
    if (!is_bits) {
        return copy_strided(&dst->layout, to, &src->layout, from);
    }
    bits_items to_bits = bits_of(dst, to), from_bits = bits_of(src, from);
    return move_bits(&to_bits, &from_bits);
}

static bool
move_items(const array_side *dst, char *to, const array_side *src, char *from, bool is_bits)
{
    if (layout_volume(&dst->layout) < LARGE_COPY / dst->layout.itemsize) {
        return move_nogil(dst, to, src, from, is_bits);
    }
    bool is_done = WITHOUT_GIL(move_nogil(dst, to, src, from, is_bits));
    return is_done;
}

static bool
is_empty(const array_side *side)
{
    return side->array != NULL ? side->array->nitems == 0 : layout_is_empty(&side->layout);
}

static int
copy_on_cpu(const char *function, array_side *dst, array_side *src, bool is_bits)
{
    array_mapping to, from;
    if (is_empty(dst)) {
        return 0;
    }
    if (side_map(function, src, MAP_READ, &from) < 0) {
        return -1;
    }
    if (side_map(function, dst, MAP_OVERWRITE, &to) < 0) {
        /* unreached: no test makes it fail here */
        (void)side_unmap(function, src, &from, false);
        return -1;
    }
    double started = timeline_begin();
    bool is_done = move_items(dst, to.origin, src, from.origin, is_bits);
    array_side_show_copy(function, dst, src, started);
    (void)side_unmap(function, src, &from, false);
    int result = side_unmap(function, dst, &to, is_done);
    if (!is_done) {
        PyErr_NoMemory();
        return -1;
    }
    return result;
}

/* Takes two sides that fit; either layout may become one of bytes. */
static int
copy_fitted(const char *function, array_side *dst, array_side *src, metal_stream *stream)
{
    bool is_bits = must_move_bits(dst, src);
    int is_queued = is_bits || is_empty(dst) ? 0 : array_queue_copy(function, dst, src, stream);
    if (is_queued != 0) {
        return is_queued < 0 ? -1 : 0;
    }
    return copy_on_cpu(function, dst, src, is_bits);
}

int
array_copy_sides(const char *function, array_side *dst, array_side *src, metal_stream *stream)
{
    return check_fit(function, dst, src) < 0 ? -1 : copy_fitted(function, dst, src, stream);
}

/* ---- copies in memory of their own ---- */

PyObject *
array_copied(const char *function, ArrayObject *self, const array_creation *what,
             metal_stream *stream)
{
    array_side to, from;
    array_side_set(&from, self);
    PyObject *op = array_allocate(state_of((PyObject *)self), function, what);
    if (op == NULL) {
        return NULL;
    }
    array_side_set(&to, array_cast(op));
    if (copy_fitted(function, &to, &from, stream) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

int
array_convert_order(const char *function, const ArrayObject *self, PyObject *value,
                    const char *letters, char *out)
{
    *out = 'C';
    if (value == NULL) {
        return 0;
    }
    bool is_letter = PyUnicode_Check(value) && PyUnicode_GET_LENGTH(value) == 1;
    Py_UCS4 letter = is_letter ? PyUnicode_READ_CHAR(value, 0) : 0;
    if (letter == 0 || letter > 'K' || strchr(letters, (char)letter) == NULL) {
        return errors_raise(PyExc_ValueError, "%s: order (%R) must be 'C', 'F'%s.", function,
                            value, strchr(letters, 'K') == NULL ? " or 'A'" : ", 'A' or 'K'");
    }
    if (letter == 'C' || letter == 'F') {
        *out = (char)letter;
        return 0;
    }
    strided_layout layout; /* 'A' and 'K': keep Fortran order where the source has it */
    array_get_layout(self, &layout);
    *out = layout_is_contiguous_f(&layout) && !layout_is_contiguous_c(&layout) ? 'F' : 'C';
    return 0;
}

const char array_doc_copy[] =
    "copy($self, /, order='C', storage=None, *, stream=None, padded=None)\n--\n\n"
    "Copy the items to memory of their own, on the same device.\n\n"
    "Parameters\n----------\n"
    "order : {'C', 'F', 'A', 'K'}\n"
    "    'A' and 'K' keep Fortran order where the source has it, else C.\n"
    "storage : {'shared', 'managed', 'private'}, optional\n"
    "    Default: the storage of this array.\n"
    "stream : Stream or int, optional\n"
    "    The stream that does it, later, as in copy_from; default: that of `with stream:`.\n"
    "padded : bool, optional\n"
    "    Sub-byte items: True gives each a byte, False packs them; default: as they are "
    "here.\n\n"
    "Returns\n-------\nArray\n    Writable; without a stream the copy is complete.\n\n"
    "Raises\n------\nMemoryError, MetalError";

ARGS_METHOD(array_method_copy, op, "Array.copy", 0, 2, 0, "order", "storage", "stream",
            "padded")
{
    ArrayObject *self = array_cast(op);
    metal_stream *stream;
    int padded;
    array_creation what = array_like(self);
    if (array_convert_order(function, self, values[0], "CFAK", &what.order) < 0 ||
        args_tristate(function, "padded", values[3], &padded) < 0 ||
        (padded == 1 && array_check_padding(function, self->dtype) < 0)) {
        return NULL;
    }
    if (args_is_given(values[1]) &&
        storage_mode_convert(state_of(op), function, values[1], &what.mode) < 0) {
        return NULL;
    }
    if (stream_convert_target(state_of(op), function, values[2], &stream) < 0) {
        return NULL;
    }
    what.is_padded = padded < 0 ? self->is_padded : padded;
    PyObject *result = array_copied(function, self, &what, stream);
    stream_release(stream);
    return result;
}

const char array_doc_copy_copy[] =
    "__copy__($self, /)\n--\n\nA copy, as copy() makes it: views are made by indexing.";

PyObject *
array_method_copy_copy(PyObject *op, PyObject *Py_UNUSED(unused))
{
    array_creation what = array_like(array_cast(op));
    return array_copied("Array.__copy__", array_cast(op), &what, NULL);
}

const char array_doc_deepcopy[] =
    "__deepcopy__($self, memo, /)\n--\n\nA copy, as copy() makes it.";

PyObject *
array_method_deepcopy(PyObject *op, PyObject *Py_UNUSED(memo))
{
    array_creation what = array_like(array_cast(op));
    return array_copied("Array.__deepcopy__", array_cast(op), &what, NULL);
}
