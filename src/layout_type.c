/* layout_type.c: the StridedLayout type: a layout as an immutable Python value.
 *
 * Owns:    nothing but its numbers, kept in the object itself.
 * Calls:   layout.h for all arithmetic.
 * Threads: the GIL is held.
 */
#include "layout_type.h"

#include "args.h"
#include "errors.h"

typedef struct {
    PyObject_VAR_HEAD /* ob_size = 2 * ndim */
    int64_t itemsize;
    int64_t offset; /* items */
    int32_t ndim;
    int64_t dims[]; /* ndim extents, then ndim strides in items */
} LayoutObject;

static inline LayoutObject *
layout_cast(PyObject *op)
{
    return (LayoutObject *)op;
}

/* ---- making ---- */

PyObject *
layout_type_new(md_state *state, const strided_layout *layout)
{
    LayoutObject *self = PyObject_NewVar(LayoutObject, state->layout_type, 2 * layout->ndim);
    if (self == NULL) {
        return NULL;
    }
    size_t nbytes = (size_t)layout->ndim * sizeof(int64_t);
    self->itemsize = layout->itemsize;
    self->offset = layout->offset;
    self->ndim = layout->ndim;
    memcpy(self->dims, layout->shape, nbytes);
    memcpy(self->dims + layout->ndim, layout->strides, nbytes);
    return (PyObject *)self;
}

void
layout_type_get(PyObject *op, strided_layout *out)
{
    LayoutObject *self = layout_cast(op);
    size_t nbytes = (size_t)self->ndim * sizeof(int64_t);
    out->ndim = self->ndim;
    out->itemsize = self->itemsize;
    out->offset = self->offset;
    memcpy(out->shape, self->dims, nbytes);
    memcpy(out->strides, self->dims + self->ndim, nbytes);
}

/* Strides given in bytes, as items. */
static int
divide_strides(int64_t *strides, int count, int64_t itemsize)
{
    for (int axis = 0; axis < count; axis++) {
        if (strides[axis] % itemsize != 0) {
            PyErr_Format(PyExc_ValueError,
                         "StridedLayout: stride %lld of axis %d is not a multiple of the itemsize "
                         "(%lld bytes).",
                         (long long)strides[axis], axis, (long long)itemsize);
            return -1;
        }
        strides[axis] /= itemsize;
    }
    return 0;
}

static int
convert_strides(PyObject *value, int ndim, int64_t itemsize, bool is_divided, int64_t *out)
{
    int count;
    if (args_int64s("StridedLayout", "strides", value, out, LAYOUT_MAX_NDIM, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "StridedLayout: %d strides are given for %d extents.", count,
                     ndim);
        return -1;
    }
    return is_divided ? divide_strides(out, count, itemsize) : 0;
}

static PyObject *
layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const args_spec spec = {
        "StridedLayout", 0, 4, 3, {"shape", "strides", "itemsize", "divide_strides", NULL}};
    md_state *state = PyType_GetModuleState(type);
    PyObject *values[4];
    int64_t shape[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM], itemsize;
    int ndim, is_divided = 0;
    strided_layout layout;
    layout_fault fault;
    if (args_parse_tuple(&spec, args, kwargs, values) < 0 ||
        args_int64s("StridedLayout", "shape", values[0], shape, LAYOUT_MAX_NDIM, &ndim) < 0 ||
        args_int64("StridedLayout", "itemsize", values[2], &itemsize) < 0 ||
        (values[3] != NULL && (is_divided = PyObject_IsTrue(values[3])) < 0)) {
        return NULL;
    }
    if (itemsize < 1) {
        fault = (layout_fault){LAYOUT_FAULT_ITEMSIZE, itemsize, 0};
        return errors_from_layout(state, "StridedLayout", &fault);
    }
    bool has_strides = values[1] != Py_None;
    if (has_strides && convert_strides(values[1], ndim, itemsize, is_divided, strides) < 0) {
        return NULL;
    }
    if (!layout_set(&layout, ndim, shape, has_strides ? strides : NULL, itemsize, 0, &fault)) {
        return errors_from_layout(state, "StridedLayout", &fault);
    }
    return layout_type_new(state, &layout);
}

/* ---- attributes ---- */

PyObject *
layout_tuple(const int64_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, value);
    }
    return tuple;
}

static PyObject *
layout_get_ndim(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(layout_cast(op)->ndim);
}

static PyObject *
layout_get_shape(PyObject *op, void *Py_UNUSED(closure))
{
    return layout_tuple(layout_cast(op)->dims, layout_cast(op)->ndim);
}

static PyObject *
layout_get_strides(PyObject *op, void *Py_UNUSED(closure))
{
    return layout_tuple(layout_cast(op)->dims + layout_cast(op)->ndim, layout_cast(op)->ndim);
}

static PyObject *
layout_get_itemsize(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(layout_cast(op)->itemsize);
}

static PyObject *
layout_get_volume(PyObject *op, void *Py_UNUSED(closure))
{
    strided_layout layout;
    layout_type_get(op, &layout);
    return PyLong_FromLongLong(layout_volume(&layout));
}

static PyObject *
layout_get_slice_offset(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(layout_cast(op)->offset);
}

static PyObject *
layout_get_is_contiguous_c(PyObject *op, void *Py_UNUSED(closure))
{
    strided_layout layout;
    layout_type_get(op, &layout);
    return PyBool_FromLong(layout_is_contiguous_c(&layout));
}

static PyObject *
layout_get_is_contiguous_f(PyObject *op, void *Py_UNUSED(closure))
{
    strided_layout layout;
    layout_type_get(op, &layout);
    return PyBool_FromLong(layout_is_contiguous_f(&layout));
}

static PyGetSetDef layout_getset[] = {
    {"ndim", layout_get_ndim, NULL, PyDoc_STR("Number of dimensions."), NULL},
    {"shape", layout_get_shape, NULL, PyDoc_STR("Extents, a tuple of int."), NULL},
    {"strides", layout_get_strides, NULL, PyDoc_STR("Strides in items, a tuple of int."), NULL},
    {"itemsize", layout_get_itemsize, NULL, PyDoc_STR("Bytes in one item."), NULL},
    {"volume", layout_get_volume, NULL, PyDoc_STR("Number of items."), NULL},
    {"slice_offset", layout_get_slice_offset, NULL,
     PyDoc_STR("Items from the base to element 0."), NULL},
    {"is_contiguous_c", layout_get_is_contiguous_c, NULL,
     PyDoc_STR("True if the items follow each other in C order."), NULL},
    {"is_contiguous_f", layout_get_is_contiguous_f, NULL,
     PyDoc_STR("True if the items follow each other in Fortran order."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *
layout_repr(PyObject *op)
{
    PyObject *shape = layout_get_shape(op, NULL);
    PyObject *strides = shape == NULL ? NULL : layout_get_strides(op, NULL);
    PyObject *text = NULL;
    if (strides != NULL) {
        text = PyUnicode_FromFormat("StridedLayout(%R, %R, %lld)", shape, strides,
                                    (long long)layout_cast(op)->itemsize);
    }
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return text;
}

static bool
is_equal(PyObject *a, PyObject *b)
{
    LayoutObject *left = layout_cast(a), *right = layout_cast(b);
    return left->ndim == right->ndim && left->itemsize == right->itemsize &&
           left->offset == right->offset &&
           memcmp(left->dims, right->dims, 2 * (size_t)left->ndim * sizeof(int64_t)) == 0;
}

static PyObject *
layout_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong(is_equal(a, b) == (op == Py_EQ));
}

static Py_hash_t
layout_hash(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    Py_uhash_t hash = (Py_uhash_t)self->itemsize * 31 + (Py_uhash_t)self->offset;
    for (int i = 0; i < 2 * self->ndim; i++) {
        hash = hash * 1000003 ^ (Py_uhash_t)self->dims[i];
    }
    return hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
}

static PyObject *
layout_subscript(PyObject *op, PyObject *key)
{
    strided_layout in, out;
    layout_type_get(op, &in);
    if (layout_index(state_of(op), "StridedLayout", key, &in, &out) < 0) {
        return NULL;
    }
    return layout_type_new(state_of(op), &out);
}

static void
layout_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(layout_doc,
             "StridedLayout(shape, strides, itemsize, divide_strides=False)\n--\n\n"
             "Shape, strides and itemsize without data: an immutable, hashable value.\n\n"
             "Parameters\n----------\n"
             "shape : int or tuple of int\n"
             "strides : int, tuple of int, or None\n"
             "    In items; None: C order.\n"
             "itemsize : int\n"
             "    Bytes in one item, at least 1.\n"
             "divide_strides : bool\n"
             "    True: the strides are given in bytes.\n\n"
             "Raises\n------\n"
             "ValueError\n"
             "    An extent is negative, more than 64 dimensions, or anything overflows 64 bits.");

static PyType_Slot layout_slots[] = {
    {Py_tp_doc, (void *)layout_doc},
    {Py_tp_new, layout_new},
    {Py_tp_dealloc, layout_dealloc},
    {Py_tp_getset, layout_getset},
    {Py_tp_repr, layout_repr},
    {Py_tp_richcompare, layout_richcompare},
    {Py_tp_hash, layout_hash},
    {Py_mp_subscript, layout_subscript},
    {0, NULL},
};

/* No GC: a layout refers to nothing but its type. */
PyType_Spec layout_spec = {
    .name = "metal_dlpack.StridedLayout",
    .basicsize = offsetof(LayoutObject, dims),
    .itemsize = sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = layout_slots,
};
