/* array_views.c: Arrays over the same items in another shape; never a copy.
 *
 * Calls:   layout.h for the arithmetic, array.h to make the view.
 * Threads: the GIL is held.
 */
#include "array/array.h"
#include "array/array_methods.h"
#include "python/args.h"
#include "python/errors.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

/* The view, or why there is none: what a function of layout.h has answered. */
static PyObject *
view_if(bool is_view, PyObject *op, const char *function, const strided_layout *layout,
        const layout_fault *fault)
{
    return is_view ? array_view(array_cast(op), layout)
                   : errors_from_layout(state_of(op), function, fault);
}

PyObject *
array_view_by(layout_view *make, PyObject *op, const char *function, int count,
              const int64_t *values)
{
    strided_layout layout;
    layout_fault fault;
    array_get_layout(array_cast(op), &layout);
    bool is_view = make(&layout, count, values, &layout, &fault);
    return view_if(is_view, op, function, &layout, &fault);
}

/* A view, or NULL, through which nothing can be written. */
static PyObject *
make_readonly(PyObject *view)
{
    if (view != NULL) {
        array_cast(view)->is_readonly = true;
    }
    return view;
}

/* ---- indexing ---- */

PyObject *
array_subscript(PyObject *op, PyObject *key)
{
    strided_layout in, out;
    array_get_layout(array_cast(op), &in);
    if (layout_index(state_of(op), "Array", key, &in, &out) < 0) {
        return NULL;
    }
    return array_view(array_cast(op), &out);
}

PyObject *
array_sequence_item(PyObject *op, Py_ssize_t index)
{
    strided_layout layout;
    layout_fault fault;
    if (array_cast(op)->ndim == 0) {
        return PyErr_Format(PyExc_TypeError,
                            "A 0-dimensional Array cannot be iterated over; use item().");
    }
    array_get_layout(array_cast(op), &layout);
    bool is_view = layout_index_axis(&layout, 0, index, &layout.offset, &fault);
    layout_drop_axis(&layout, 0);
    return view_if(is_view, op, "Array", &layout, &fault);
}

/* ---- shapes ---- */

int
array_read_ints(const char *function, const char *name, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames, int64_t *out, int *count)
{
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        if (nargs != 0 || PyTuple_GET_SIZE(kwnames) != 1 ||
            PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), name) != 0) {
            return errors_raise(PyExc_TypeError, "%s() takes ints, one tuple, or %s=.",
                                function, name);
        }
        nargs = 1; /* keyword values follow the positional ones */
    }
    if (nargs == 1) {
        return args_int64s(function, name, args[0], out, LAYOUT_MAX_NDIM, count);
    }
    *count = 0;
    if (nargs > LAYOUT_MAX_NDIM) { /* unreached: no test makes it fail here */
        return errors_raise(PyExc_ValueError,
                            "%s: %s has %zd entries; at most %d are possible.", function, name,
                            nargs, LAYOUT_MAX_NDIM);
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (args_int64(function, name, args[i], &out[i]) < 0) {
            return -1;
        }
    }
    *count = (int)nargs;
    return 0;
}

const char array_doc_reshape[] =
    "reshape($self, /, *shape)\n--\n\n"
    "A view with another shape, in C order.\n\n"
    "Parameters\n----------\n"
    "shape : int or tuple of int\n"
    "    One extent may be -1: it is computed from the others.\n\n"
    "Raises\n------\n"
    "ValueError\n    The number of items differs.\n"
    "CopyRequiredError\n    The strides do not allow it; call copy() first.";

static PyObject *
refuse_reshape(PyObject *op, const char *function, const strided_layout *in,
               const int64_t *shape, int ndim)
{
    PyObject *strides = layout_tuple(in->strides, in->ndim);
    PyObject *from = strides == NULL ? NULL : layout_tuple(in->shape, in->ndim);
    PyObject *to = from == NULL ? NULL : layout_tuple(shape, ndim);
    if (to != NULL) {
        errors_copy_required(state_of(op),
                             "%s: shape %R with strides %R cannot be viewed as shape %R "
                             "without a copy; call a.copy() first.",
                             function, from, strides, to);
    }
    Py_XDECREF(to);
    Py_XDECREF(from);
    Py_XDECREF(strides);
    return NULL;
}

PyObject *
array_view_as(PyObject *op, const char *function, const int64_t *shape, int ndim)
{
    strided_layout in, out;
    layout_fault fault;
    array_get_layout(array_cast(op), &in);
    bool is_fit = layout_reshaped(&in, ndim, shape, &out, &fault);
    if (!is_fit && fault.code == LAYOUT_FAULT_OVERFLOW) {
        layout_squeezed(&in, &in); /* a stride that takes no step must not be in the way */
        is_fit = layout_reshaped(&in, ndim, shape, &out, &fault);
    }
    return !is_fit && fault.code == LAYOUT_FAULT_NOT_A_VIEW
               ? refuse_reshape(op, function, &in, shape, ndim)
               : view_if(is_fit, op, function, &out, &fault);
}

PyObject *
array_method_reshape(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    int64_t shape[LAYOUT_MAX_NDIM];
    int ndim;
    if (array_read_ints("Array.reshape", "shape", args, nargs, kwnames, shape, &ndim) < 0) {
        return NULL;
    }
    return array_view_as(op, "Array.reshape", shape, ndim);
}

const char array_doc_squeeze[] =
    "squeeze($self, /, axis=None)\n--\n\n"
    "A view without axes of extent 1.\n\n"
    "Parameters\n----------\n"
    "axis : int or tuple of int, optional\n"
    "    Which ones; default: all of them.\n\n"
    "Raises\n------\n"
    "ValueError\n    A named axis has another extent, or is out of range.";

ARGS_METHOD(array_method_squeeze, op, "Array.squeeze", 0, 1, 0, "axis")
{
    int64_t axes[LAYOUT_MAX_NDIM];
    int count;
    strided_layout layout;
    if (!args_is_given(values[0])) {
        array_get_layout(array_cast(op), &layout);
        layout_squeezed(&layout, &layout);
        return array_view(array_cast(op), &layout);
    }
    if (args_int64s(function, "axis", values[0], axes, LAYOUT_MAX_NDIM, &count) < 0) {
        return NULL;
    }
    return array_view_by(layout_squeezed_axes, op, function, count, axes);
}

const char array_doc_expand_dims[] =
    "expand_dims($self, /, axis)\n--\n\n"
    "A view with one more axis, of extent 1.\n\n"
    "Parameters\n----------\n"
    "axis : int\n"
    "    Its place in the result, -ndim-1 to ndim.\n\n"
    "Raises\n------\n"
    "ValueError\n    axis is out of range, or there are 64 dimensions already.";

ARGS_METHOD(array_method_expand_dims, op, "Array.expand_dims", 0, 1, 1, "axis")
{
    int64_t axis;
    if (args_int64(function, "axis", values[0], &axis) < 0) {
        return NULL;
    }
    return array_view_by(layout_expanded, op, function, 1, &axis);
}

const char array_doc_broadcast_to[] =
    "broadcast_to($self, /, shape)\n--\n\n"
    "A read-only view in which axes of extent 1 repeat (stride 0).\n\n"
    "Parameters\n----------\n"
    "shape : int or tuple of int\n\n"
    "Raises\n------\n"
    "ValueError\n    The shapes do not fit, by NumPy's broadcasting rules.";

ARGS_METHOD(array_method_broadcast_to, op, "Array.broadcast_to", 0, 1, 1, "shape")
{
    int64_t shape[LAYOUT_MAX_NDIM];
    int ndim;
    if (args_int64s(function, "shape", values[0], shape, LAYOUT_MAX_NDIM, &ndim) < 0) {
        return NULL;
    }
    /* one item stands in many places */
    return make_readonly(array_view_by(layout_broadcast, op, function, ndim, shape));
}

/* ---- rights ---- */

const char array_doc_as_readonly[] =
    "as_readonly($self, /)\n--\n\n"
    "A view through which nothing can be written.\n\n"
    "Its DLPack exports carry the READ_ONLY flag; a legacy capsule, which has none, is\n"
    "refused.";

PyObject *
array_method_as_readonly(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return make_readonly(array_alias(array_cast(op)));
}

/* ---- the same bytes as items of another type ---- */

static bool
recount_extent(int64_t *extent, int64_t from, int64_t to)
{
    int64_t bits;
    if (!layout_multiply(*extent, from, &bits) || bits % to != 0) {
        return false;
    }
    *extent = bits / to;
    return true;
}

/* Items of `to` bits each: the last axis is recounted.  It must be compact, and every other step
 * must be whole items of the new type; strides of axes that take no step say nothing. */
static bool
recount(const ArrayObject *self, DLDataType dtype, int64_t to, strided_layout *out)
{
    int64_t from = array_item_bits(self), itemsize = dtype_itemsize(dtype);
    layout_fault fault;
    array_get_layout(self, out);
    int last = out->ndim - 1;
    out->itemsize = itemsize;
    if (from == to) {
        return true;
    }
    if (last < 0 || !recount_extent(&out->shape[last], from, to)) {
        return false;
    }
    if (self->nitems == 0) { /* only the last extent says how many bits there would be */
        int64_t shape[LAYOUT_MAX_NDIM];
        memcpy(shape, out->shape, (size_t)out->ndim * sizeof shape[0]);
        return layout_set_dense(out, out->ndim, shape, itemsize, 'C', &fault);
    }
    if (array_shape(self)[last] != 1 && out->strides[last] != 1) {
        return false;
    }
    out->strides[last] = 1;
    for (int axis = 0; axis < last; axis++) {
        if (out->shape[axis] == 1) {
            out->strides[axis] = 0;
        }
        else if (!recount_extent(&out->strides[axis], from, to)) {
            return false;
        }
    }
    return true;
}

const char array_doc_view[] =
    "view($self, /, dtype=None, *shape)\n--\n\n"
    "The same bytes as items of another type, with no conversion; or as another shape.\n\n"
    "Parameters\n----------\n"
    "dtype : dtype, optional\n"
    "    Without it: another view of the same items, as in NumPy.\n"
    "shape : int or tuple of int\n"
    "    In place of a dtype: as in torch, a shape, which reshape() takes too.\n\n"
    "If the item sizes differ, the last axis shrinks or grows; it must be contiguous.\n"
    "Packed sub-byte items count in bits: two int4 are a uint8.  Padded items, of a byte\n"
    "each, stay padded in a type with the same number of bits.\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    The last axis is not contiguous or its bytes do not divide, or the items would not\n"
    "    be aligned; the number of items differs.\n"
    "CopyRequiredError\n    The strides do not allow the shape; call copy() first.";

static PyObject *
view_items(PyObject *op, const char *function, PyObject *value)
{
    ArrayObject *self = array_cast(op);
    md_state *state = state_of(op);
    DLDataType dtype;
    strided_layout out;
    if (dtype_type_convert(state, function, value, &dtype) < 0) {
        return NULL;
    }
    /* Padded items stay so in a type of as many bits; seen as whole bytes they are bytes. */
    bool is_padded = self->is_padded && dtype.lanes == 1 && dtype.bits == self->dtype.bits;
    if (!recount(self, dtype, dtype_step_bits(dtype, is_padded), &out)) {
        return PyErr_Format(PyExc_ValueError,
                            "Array.view: the last axis of %s items is not contiguous or its "
                            "bytes do not divide into %s items; use copy() or slice it.",
                            dtype_name(self->dtype).text, dtype_name(dtype).text);
    }
    if (self->nitems > 0 && self->byte_offset % dtype_alignment(dtype) != 0) {
        return PyErr_Format(PyExc_ValueError,
                            "Array.view: byte_offset (%lld) is not a multiple of the element's "
                            "alignment (%lld bytes); use copy() first.",
                            (long long)self->byte_offset, (long long)dtype_alignment(dtype));
    }
    PyObject *buffer = array_buffer(self);
    return buffer == NULL ? NULL
                          : array_new(state, buffer, self->byte_offset, &out, dtype,
                                      self->is_readonly, is_padded);
}

PyObject *
array_method_view(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char function[] = "Array.view";
    static const args_spec spec = ARGS_SPEC("Array.view", 0, 1, 0, "dtype");
    if (nargs > 1 || (nargs == 1 && (PyTuple_Check(args[0]) || PyIndex_Check(args[0])))) {
        int64_t shape[LAYOUT_MAX_NDIM];
        int ndim;
        return array_read_ints(function, "shape", args, nargs, kwnames, shape, &ndim) < 0
                   ? NULL
                   : array_view_as(op, function, shape, ndim);
    }
    PyObject *dtype;
    if (args_parse(&spec, args, nargs, kwnames, &dtype) < 0) {
        return NULL;
    }
    return args_is_given(dtype) ? view_items(op, function, dtype) : array_alias(array_cast(op));
}
