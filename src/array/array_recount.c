/* array_recount.c: Array.view(dtype): the same bytes as items of another type, the last axis
 * recounted.
 *
 * Calls:   layout_repacked for items of whole bytes; packed ones are counted in bits here.
 * Threads: the GIL is held.
 */
#include "array/array.h"
#include "array/array_methods.h"
#include "python/args.h"
#include "values/dtype_type.h"

/* Packed items on either side: the last axis is recounted in bits.  It must be compact, and
 * every other step must be whole items of the other type. */
static bool
recount_packed(const ArrayObject *self, DLDataType dtype, strided_layout *out)
{
    int64_t from = array_item_bits(self), to = dtype_item_bits(dtype), bits;
    array_get_layout(self, out);
    int last = out->ndim - 1;
    out->itemsize = dtype_itemsize(dtype);
    if (from == to) {
        return true;
    }
    if (last < 0 || (out->strides[last] != 1 && out->shape[last] != 1) ||
        !layout_multiply(out->shape[last], from, &bits) || bits % to != 0) {
        return false;
    }
    out->shape[last] = bits / to;
    out->strides[last] = 1;
    for (int axis = 0; axis < last; axis++) {
        if (!layout_multiply(out->strides[axis], from, &bits) ||
            (bits % to != 0 && out->shape[axis] > 1)) {
            return false;
        }
        out->strides[axis] = bits / to;
    }
    return true;
}

/* No items: only the last extent says how many bits there would be. */
static bool
recount_nothing(const ArrayObject *self, DLDataType dtype, bool is_padded, strided_layout *out)
{
    int64_t shape[LAYOUT_MAX_NDIM], from = array_item_bits(self), bits;
    int64_t to = dtype_step_bits(dtype, is_padded);
    layout_fault fault;
    memcpy(shape, array_shape(self), (size_t)self->ndim * sizeof shape[0]);
    int64_t *last = &shape[self->ndim - 1]; /* there: an array of no dimensions has an item */
    if (!layout_multiply(*last, from, &bits) || (bits % to != 0 && from != to)) {
        return false;
    }
    *last = bits / to;
    return layout_set_dense(out, self->ndim, shape, dtype_itemsize(dtype), 'C', &fault);
}

/* The strides of axes that never step say nothing, and must not be in the way. */
static void
settle_strides(strided_layout *layout)
{
    for (int axis = 0; axis < layout->ndim; axis++) {
        if (layout->shape[axis] == 1) {
            layout->strides[axis] = axis == layout->ndim - 1;
        }
    }
}

static bool
recount_bytes(const ArrayObject *self, DLDataType dtype, strided_layout *out)
{
    strided_layout in;
    layout_fault fault;
    array_get_layout(self, &in);
    if (in.itemsize == dtype_itemsize(dtype)) {
        *out = in;
        return true;
    }
    settle_strides(&in);
    return in.ndim > 0 &&
           layout_repacked(&in, dtype_itemsize(dtype), in.ndim - 1, true, out, &fault);
}

static bool
recount(const ArrayObject *self, DLDataType dtype, bool is_padded, strided_layout *out)
{
    if (self->nitems == 0) {
        return recount_nothing(self, dtype, is_padded, out);
    }
    bool is_bytes = !array_is_packed(self) && (is_padded || dtype_is_whole_bytes(dtype));
    return is_bytes ? recount_bytes(self, dtype, out) : recount_packed(self, dtype, out);
}

/* Padded items stay so in a type of as many bits; seen as whole bytes they are bytes. */
static bool
keeps_padding(const ArrayObject *self, DLDataType dtype)
{
    return self->is_padded && dtype.lanes == 1 && dtype.bits == self->dtype.bits;
}

const char array_doc_view[] =
    "view($self, /, dtype)\n--\n\n"
    "The same bytes as items of another type; no conversion.\n\n"
    "If the item sizes differ, the last axis shrinks or grows; it must be contiguous.\n"
    "Packed sub-byte items count in bits: two int4 are a uint8.  Padded items, of a byte\n"
    "each, stay padded in a type with the same number of bits.\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    The last axis is not contiguous or its bytes do not divide, or the items would not\n"
    "    be aligned.";

PyObject *
array_method_view(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.view", 0, 1, 1, {"dtype", NULL}};
    ArrayObject *self = array_cast(op);
    md_state *state = state_of(op);
    PyObject *values[1];
    DLDataType dtype;
    strided_layout out;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        dtype_type_convert(state, "Array.view", values[0], &dtype) < 0) {
        return NULL;
    }
    bool is_padded = keeps_padding(self, dtype);
    if (!recount(self, dtype, is_padded, &out)) {
        char from[DTYPE_NAME_MAX], to[DTYPE_NAME_MAX];
        dtype_write_name(self->dtype, from);
        dtype_write_name(dtype, to);
        return PyErr_Format(
            PyExc_ValueError,
            "Array.view: the last axis of %s items is not contiguous or its bytes "
            "do not divide into %s items; use copy() or slice it.",
            from, to);
    }
    if (self->nitems > 0 && self->byte_offset % dtype_alignment(dtype) != 0) {
        return PyErr_Format(PyExc_ValueError,
                            "Array.view: byte_offset (%lld) is not a multiple of the element's "
                            "alignment (%lld bytes); use copy() first.",
                            (long long)self->byte_offset, (long long)dtype_alignment(dtype));
    }
    PyObject *buffer = array_buffer(self);
    return buffer == NULL ? NULL
                          : array_new_padded(state, buffer, self->byte_offset, &out, dtype,
                                             self->is_readonly, is_padded);
}
