/* layout_type.c: the StridedLayout type: a layout as an immutable Python value.
 *
 * Owns:    nothing but its numbers, kept in the object itself; see layout_type_object.h.
 * Calls:   layout.h for all arithmetic.  Attributes are in layout_type_facts.c, methods in
 *          layout_type_views.c.
 * Threads: the GIL is held.
 */
#include "values/layout_type.h"

#include <stddef.h>
#include <stdio.h>

#include "python/args.h"
#include "values/layout_type_object.h"

/* ---- making ---- */

/* All but extents and strides: owned (+1). */
static inline LayoutObject *
new_object(PyTypeObject *type, int ndim, int64_t itemsize, int64_t offset)
{
    int capacity = ndim <= LAYOUT_FEW ? LAYOUT_FEW : ndim;
    LayoutObject *self = PyObject_NewVar(LayoutObject, type, 2 * (Py_ssize_t)capacity);
    if (self == NULL) {
        return NULL;
    }
    self->itemsize = itemsize;
    self->offset = offset;
    self->ndim = ndim;
    self->capacity = capacity;
    self->answers = 0;
    self->is_implicit = false;
    self->has_known = false;
    memset(self->known, 0, sizeof self->known);
    return self;
}

PyObject *
layout_object_new(PyTypeObject *type, const strided_layout *layout)
{
    LayoutObject *self = new_object(type, layout->ndim, layout->itemsize, layout->offset);
    if (self != NULL) {
        layout_copy_fresh(self->dims, layout->shape, layout->ndim);
        layout_copy_fresh(self->dims + self->capacity, layout->strides, layout->ndim);
    }
    return (PyObject *)self;
}

PyObject *
layout_type_new(md_state *state, const strided_layout *layout)
{
    return layout_object_new(state->layout_type, layout);
}

void
layout_type_get(PyObject *op, strided_layout *out)
{
    layout_read(op, out);
}

PyObject *
layout_object_refuse(const char *where, const layout_fault *fault)
{
    char text[160];
    /* Every text of the list takes at most these two numbers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(text, sizeof text, layout_fault_text(fault->code), (long long)fault->a,
                   (long long)fault->b);
#pragma GCC diagnostic pop
    PyObject *class =
        fault->code == LAYOUT_FAULT_OVERFLOW ? PyExc_OverflowError : PyExc_ValueError;
    return PyErr_Format(class, "%s: %s.", where, text);
}

int
layout_read_ints(const char *function, const char *what, PyObject *value, int64_t *out, int *count)
{
    if (layout_read_small_int(value, out)) {
        *count = 1;
        return 0;
    }
    if (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) > LAYOUT_MAX_NDIM) {
        return args_int64s(function, what, value, out, LAYOUT_MAX_NDIM, count);
    }
    int nitems = (int)PyTuple_GET_SIZE(value);
    for (int i = 0; i < nitems; i++) {
        if (layout_read_int(function, what, PyTuple_GET_ITEM(value, i), &out[i]) < 0) {
            return -1;
        }
    }
    *count = nitems;
    return 0;
}

int
layout_read_axes(const char *function, const char *what, PyObject *value, int ndim, int *axes)
{
    int64_t given[LAYOUT_MAX_NDIM];
    int count;
    if (layout_read_ints(function, what, value, given, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d entries for %d dimensions.", function, what,
                     count, ndim);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        axes[i] = (int)given[i];
        if ((given[i] < 0 || given[i] >= ndim) &&
            args_axis(function, given[i], ndim, &axes[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- StridedLayout(...) ---- */

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

/* Every stride can be counted in bytes, also of an axis that takes no step. */
static bool
check_strides(const strided_layout *layout, layout_fault *fault)
{
    int64_t nbytes;
    if (layout_magnitude(layout->strides, layout->ndim) < 1 << 23 && layout->itemsize < 1 << 23) {
        return true;
    }
    for (int axis = 0; axis < layout->ndim; axis++) {
        if (!layout_multiply(layout->strides[axis], layout->itemsize, &nbytes)) {
            return layout_fail(fault, LAYOUT_FAULT_OVERFLOW, axis, 0);
        }
    }
    return true;
}

static int
read_strides(PyObject *value, int ndim, int64_t itemsize, bool is_divided, int64_t *out)
{
    int count;
    if (layout_read_ints("StridedLayout", "strides", value, out, &count) < 0) {
        return -1;
    }
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "StridedLayout: %d strides are given for %d extents.", count,
                     ndim);
        return -1;
    }
    return is_divided ? divide_strides(out, count, itemsize) : 0;
}

/* C order, whose strides are 0 if there are no items. */
static PyObject *
new_implicit(PyTypeObject *type, int ndim, const int64_t *shape, int64_t itemsize)
{
    strided_layout layout;
    layout_fault fault;
    if (!layout_set_dense(&layout, ndim, shape, itemsize, 'C', &fault)) {
        return layout_object_refuse("StridedLayout", &fault);
    }
    if (layout_is_empty(&layout)) {
        layout_clear_strides(&layout);
    }
    PyObject *op = layout_object_new(type, &layout);
    if (op != NULL) {
        layout_cast(op)->is_implicit = true;
    }
    return op;
}

/* Two tuples of one length, of small ints, read in one pass into `dims`, extents and strides apart by
 * LAYOUT_FEW.  False: something else, or numbers large enough to need the checks of layout_set: no
 * exception is set. */
static inline bool
read_few(PyObject *shape, PyObject *strides, int ndim, int64_t itemsize, int64_t *dims)
{
    uint64_t most = 0;
    int bits = 64 - __builtin_clzll((uint64_t)itemsize); /* of all items, at most */
    for (int i = 0; i < ndim; i++) {
        int64_t extent, stride;
        if (!layout_read_small_int(PyTuple_GET_ITEM(shape, i), &extent) ||
            !layout_read_small_int(PyTuple_GET_ITEM(strides, i), &stride)) {
            return false;
        }
        dims[i] = extent;
        dims[LAYOUT_FEW + i] = stride;
        most |= (uint64_t)extent | (uint64_t)(stride ^ stride >> 63);
        bits += 64 - __builtin_clzll((uint64_t)extent | 1);
    }
    /* 8 axes of 2^23 steps of 2^23 items of 2^7 bytes fit; a negative extent is not small. */
    return most < 1 << 23 && itemsize <= 1 << 7 && bits < 63;
}

/* The layout of most calls, without the copies between the steps: owned (+1).  NULL without an exception:
 * not such a call; with one: no memory. */
static inline PyObject *
new_of_few(PyTypeObject *type, PyObject *shape, PyObject *strides, int64_t itemsize, int64_t offset)
{
    if (!PyTuple_CheckExact(shape) || !PyTuple_CheckExact(strides) || offset != 0 ||
        PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides) ||
        PyTuple_GET_SIZE(shape) > LAYOUT_FEW) {
        return NULL;
    }
    int ndim = (int)PyTuple_GET_SIZE(shape);
    LayoutObject *self = new_object(type, ndim, itemsize, 0);
    if (self != NULL && !read_few(shape, strides, ndim, itemsize, self->dims)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *
layout_object_from_values(PyTypeObject *type, PyObject *const *values, int64_t offset)
{
    int64_t shape[LAYOUT_MAX_NDIM], strides[LAYOUT_MAX_NDIM], itemsize;
    int ndim, is_divided = 0;
    strided_layout layout;
    layout_fault fault;
    if (values[3] == NULL && layout_read_small_int(values[2], &itemsize) && itemsize > 0) {
        PyObject *op = new_of_few(type, values[0], values[1], itemsize, offset);
        if (op != NULL || PyErr_Occurred()) {
            return op;
        }
    }
    if (layout_read_ints("StridedLayout", "shape", values[0], shape, &ndim) < 0 ||
        layout_read_int("StridedLayout", "itemsize", values[2], &itemsize) < 0 ||
        (values[3] != NULL && (is_divided = PyObject_IsTrue(values[3])) < 0)) {
        return NULL;
    }
    if (itemsize < 1) { /* before strides are divided by it */
        (void)layout_fail(&fault, LAYOUT_FAULT_ITEMSIZE, itemsize, 0);
        return layout_object_refuse("StridedLayout", &fault);
    }
    if (values[1] == Py_None) {
        return new_implicit(type, ndim, shape, itemsize);
    }
    if (read_strides(values[1], ndim, itemsize, is_divided, strides) < 0) {
        return NULL;
    }
    if (!layout_set(&layout, ndim, shape, strides, itemsize, offset, &fault) ||
        !check_strides(&layout, &fault)) {
        return layout_object_refuse("StridedLayout", &fault);
    }
    return layout_object_new(type, &layout);
}

static const args_spec new_spec = {
    "StridedLayout", 0, 4, 3, {"shape", "strides", "itemsize", "divide_strides", NULL}};

static PyObject *
layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[4];
    if (args_parse_tuple(&new_spec, args, kwargs, values) < 0) {
        return NULL;
    }
    return layout_object_from_values(type, values, 0);
}

static PyObject *
layout_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *values[4];
    if (layout_parse(&new_spec, args, PyVectorcall_NARGS(nargsf), kwnames, values) < 0) {
        return NULL;
    }
    return layout_object_from_values((PyTypeObject *)type, values, 0);
}

/* ---- what every value has ---- */

/* The end of what was written: `text` without its final 0. */
static char *
write_text(char *out, const char *text)
{
    size_t length = strlen(text);
    memcpy(out, text, length);
    return out + length;
}

/* At most 20 characters. */
static char *
write_int(char *out, int64_t value)
{
    char digits[20];
    int count = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0) {
        *out++ = '-';
    }
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    while (count > 0) {
        *out++ = digits[--count];
    }
    return out;
}

/* "(2, 3)", as a tuple of ints prints: at most 22 characters a number. */
static char *
write_tuple(char *out, const int64_t *values, int count)
{
    *out++ = '(';
    for (int i = 0; i < count; i++) {
        out = write_int(i == 0 ? out : write_text(out, ", "), values[i]);
    }
    return write_text(out, count == 1 ? ",)" : ")");
}

static PyObject *
layout_repr(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    char text[2 * 22 * LAYOUT_MAX_NDIM + 160];
    char *end = write_text(text, "StridedLayout(shape=");
    end = write_text(write_tuple(end, layout_shape(self), self->ndim), ", strides=");
    end = self->is_implicit ? write_text(end, "None")
                            : write_tuple(end, layout_strides(self), self->ndim);
    end = write_int(write_text(end, ", itemsize="), self->itemsize);
    if (self->offset != 0) {
        end = write_int(write_text(end, ", slice_offset="), self->offset);
    }
    *end++ = ')';
    return PyUnicode_FromStringAndSize(text, end - text);
}

static bool
is_equal(const LayoutObject *a, const LayoutObject *b)
{
    if (a->ndim != b->ndim || a->itemsize != b->itemsize || a->offset != b->offset ||
        a->is_implicit != b->is_implicit) {
        return false;
    }
    const int64_t *strides_a = layout_strides(a), *strides_b = layout_strides(b);
    for (int axis = 0; axis < a->ndim; axis++) {
        if (a->dims[axis] != b->dims[axis] || strides_a[axis] != strides_b[axis]) {
            return false;
        }
    }
    return true;
}

static PyObject *
layout_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool is_true = is_equal(layout_cast(a), layout_cast(b)) == (op == Py_EQ);
    return Py_NewRef(is_true ? Py_True : Py_False);
}

/* Mixes well in the low bits too, which is where a dict looks. */
static inline Py_uhash_t
mix_hash(Py_uhash_t hash, int64_t value)
{
    hash = (hash ^ (Py_uhash_t)value) * (Py_uhash_t)UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> (4 * sizeof hash);
}

static Py_hash_t
layout_hash(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    const int64_t *strides = layout_strides(self);
    Py_uhash_t hash = mix_hash((Py_uhash_t)self->ndim * 2 + self->is_implicit, self->itemsize);
    hash = mix_hash(hash, self->offset);
    for (int axis = 0; axis < self->ndim; axis++) {
        hash = mix_hash(mix_hash(hash, self->dims[axis]), strides[axis]);
    }
    return hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
}

static PyObject *
layout_subscript(PyObject *op, PyObject *key)
{
    strided_layout in, out;
    layout_read(op, &in);
    if (layout_index_self(&in, key, &out) < 0) {
        return NULL;
    }
    return layout_object_new(Py_TYPE(op), &out);
}

static void
layout_dealloc(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    PyTypeObject *type = Py_TYPE(op);
    if (self->has_known) {
        for (int i = 0; i < KNOWN_COUNT; i++) {
            Py_XDECREF(self->known[i]);
        }
    }
    PyObject_Free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    layout_doc,
    "StridedLayout(shape, strides, itemsize, divide_strides=False)\n--\n\n"
    "Shape, strides and itemsize without data: an immutable, hashable value.\n\n"
    "Parameters\n----------\n"
    "shape : int or sequence of int\n"
    "    The extents, at least 0; at most 64 of them.\n"
    "strides : int, sequence of int, or None\n"
    "    In items, as many as extents; negative and 0 too.  None: C order, and the\n"
    "    attribute `strides` is None.\n"
    "itemsize : int\n"
    "    Bytes in one item, at least 1.\n"
    "divide_strides : bool, default False\n"
    "    True: the strides are given in bytes.\n\n"
    "Raises\n------\n"
    "OverflowError\n"
    "    The volume, a stride or an offset does not fit in 64 bits when it is counted in bytes.\n"
    "ValueError\n"
    "    An extent is negative, there are more than 64, strides and shape differ in length, a\n"
    "    stride in bytes is no multiple of itemsize, or itemsize is below 1.\n"
    "TypeError\n"
    "    Something else than ints.\n\n"
    "Memory and threads: about 250 bytes up to 8 dimensions, in one piece.  Any thread may use\n"
    "it.  Layouts made with strides None and with the same strides spelled out differ.\n\n"
    "Source: the model is cuda.core._layout._StridedLayout.");

#define AS_CALL(name, text, flags)                                                     \
    {text, MD_FASTCALL(layout_method_##name) | (flags), layout_doc_##name},
#define AS_PLAIN(name, text, flags)                                                    \
    {text, layout_method_##name, flags, layout_doc_##name},
static PyMethodDef layout_methods[] = {LAYOUT_CALL_LIST(AS_CALL) LAYOUT_PLAIN_LIST(AS_PLAIN){
    NULL, NULL, 0, NULL}};

static PyType_Slot layout_slots[] = {
    {Py_tp_doc, (void *)layout_doc},
    {Py_tp_new, layout_new},
    {Py_tp_dealloc, layout_dealloc},
    {Py_tp_getset, layout_getset},
    {Py_tp_methods, layout_methods},
    {Py_tp_repr, layout_repr},
    {Py_tp_richcompare, layout_richcompare},
    {Py_tp_hash, layout_hash},
    {Py_mp_subscript, layout_subscript},
    {0, NULL},
};

/* No GC: a layout refers to nothing but its type and tuples of ints. */
PyType_Spec layout_spec = {
    .name = "metal_dlpack.StridedLayout",
    .basicsize = offsetof(LayoutObject, dims),
    .itemsize = sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = layout_slots,
};

/* A method of the class as an attribute that is bound already: looked up, it need not be made.  There
 * is no subclass to bind it to. */
static int
bind_class_method(PyTypeObject *type, PyMethodDef *method)
{
    PyObject *bound = PyCFunction_NewEx(method, (PyObject *)type, NULL);
    int result = bound == NULL ? -1 : PyDict_SetItemString(type->tp_dict, method->ml_name, bound);
    Py_XDECREF(bound);
    return result;
}

int
layout_type_prepare(md_state *state)
{
    PyTypeObject *type = state->layout_type;
    type->tp_vectorcall = layout_vectorcall; /* a slot, Py_tp_vectorcall, only from 3.14 on */
    for (PyMethodDef *method = layout_methods; method->ml_name != NULL; method++) {
        if ((method->ml_flags & METH_CLASS) && bind_class_method(type, method) < 0) {
            return -1;
        }
    }
    PyType_Modified(type);
    return 0;
}
