/* layout_type.c: the StridedLayout type: a layout as an immutable Python value.
 *
 * Owns:    nothing but its numbers, kept in the object itself; see layout_type_object.h.
 * Calls:   layout.h for all arithmetic.  Methods are in layout_type_views.c, layout_type_dense.c
 *          and layout_type_object.c.
 * Threads: the GIL is held.
 */

#include "values/layout_type_object.h"

#include <structmember.h>

#include "python/call_python.h"

/* ---- StridedLayout(...) ---- */

static const args_spec new_spec = {
    "StridedLayout", 0, 4, 3, {"shape", "strides", "itemsize", "divide_strides", NULL}};

static PyObject *
layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values[4];
    if (args_parse_tuple(&new_spec, args, kwargs, values) < 0) {
        return NULL;
    }
    return layout_object_from_values(type, values, 0, false);
}

static PyObject *
layout_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *values[4];
    if (args_parse(&new_spec, args, PyVectorcall_NARGS(nargsf), kwnames, values) < 0) {
        return NULL;
    }
    return layout_object_from_values((PyTypeObject *)type, values, 0, false);
}

/* ---- tuples, made once ---- */

/* The numbers of a tuple, to be kept.  False with OverflowError: in an Array's layout a stride
 * that is never taken may fit in items, and not in bytes. */
static bool
work_out(PyObject *op, intptr_t place, int64_t *out)
{
    strided_layout layout;
    layout_fault fault = {LAYOUT_FAULT_OVERFLOW, 0, 0};
    layout_read(op, &layout);
    if (place == KNOWN_STRIDE_ORDER && !layout_cast(op)->is_implicit) {
        layout_stride_order(&layout, out);
        return true;
    }
    for (int axis = 0; axis < layout.ndim; axis++) {
        switch (place) {
        case KNOWN_SHAPE: out[axis] = layout.shape[axis]; break;
        case KNOWN_STRIDES: out[axis] = layout.strides[axis]; break;
        case KNOWN_STRIDE_ORDER: out[axis] = axis; break; /* C order */
        default:
            if (!layout_multiply(layout.strides[axis], layout.itemsize, &out[axis])) {
                /* unreached: no test makes it fail here */
                (void)errors_from_layout(NULL, "StridedLayout.strides_in_bytes", &fault);
                return false;
            }
        }
    }
    return true;
}

/* If two threads make one, the first stays. */
static PyObject *
make_known(PyObject *op, intptr_t place)
{
    int64_t numbers[LAYOUT_MAX_NDIM];
    PyObject *none = NULL;
    PyObject *made =
        work_out(op, place, numbers) ? layout_tuple(numbers, layout_cast(op)->ndim) : NULL;
    if (made == NULL ||
        __atomic_compare_exchange_n(&layout_cast(op)->known[place], &none, made, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return Py_XNewRef(made);
    }
    Py_DECREF(made);
    return Py_NewRef(none); /* unreached: no test makes it fail here */
}

/* `closure`: a KNOWN. */
static PyObject *
layout_get_tuple(PyObject *op, void *closure)
{
    LayoutObject *self = layout_cast(op);
    intptr_t place = (intptr_t)closure;
    PyObject *known = __atomic_load_n(&self->known[place], __ATOMIC_ACQUIRE);
    if (known != NULL) {
        return Py_NewRef(known);
    }
    bool is_of_strides = place == KNOWN_STRIDES || place == KNOWN_STRIDES_IN_BYTES;
    return self->is_implicit && is_of_strides ? Py_NewRef(Py_None) : make_known(op, place);
}

/* Set min and max where they are not, and return the object: borrowed. */
static const LayoutObject *
find_bounds(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    if (__atomic_load_n(&self->answers, __ATOMIC_ACQUIRE) & ANSWER_BOUNDS) {
        return self;
    }
    strided_layout layout;
    int64_t min = 0, max = -1;
    layout_read(op, &layout);
    if (!layout_is_empty(&layout)) {
        layout_offset_bounds(&layout, &min, &max);
    }
    __atomic_store_n(&self->min, min, __ATOMIC_RELAXED);
    __atomic_store_n(&self->max, max, __ATOMIC_RELAXED);
    __atomic_fetch_or(&self->answers, ANSWER_BOUNDS, __ATOMIC_RELEASE);
    return self;
}

static PyObject *
layout_get_offset_bounds(PyObject *op, void *Py_UNUSED(closure))
{
    const LayoutObject *self = find_bounds(op);
    return layout_tuple((int64_t[]){self->min, self->max}, 2);
}

/* ---- numbers ---- */

static PyObject *
layout_get_volume(PyObject *op, void *Py_UNUSED(closure))
{
    LayoutObject *self = layout_cast(op);
    int64_t items = 1;
    for (int axis = 0; axis < self->ndim; axis++) {
        items *= layout_shape(self)[axis]; /* checked when it was made */
    }
    return PyLong_FromLongLong(items);
}

static PyObject *
layout_get_slice_offset_in_bytes(PyObject *op, void *Py_UNUSED(closure))
{
    int64_t nbytes;
    if (!layout_multiply(layout_cast(op)->offset, layout_cast(op)->itemsize, &nbytes)) {
        /* unreached: no test makes it fail here */
        layout_fault fault = {LAYOUT_FAULT_OVERFLOW, 0, 0};
        return errors_from_layout(NULL, "StridedLayout.slice_offset_in_bytes", &fault);
    }
    return PyLong_FromLongLong(nbytes);
}

/* `closure`: the offset of `min` or `max` in the object. */
static PyObject *
layout_get_bound(PyObject *op, void *closure)
{
    return PyLong_FromLongLong(
        *(const int64_t *)((const char *)find_bounds(op) + (uintptr_t)closure));
}

LAYOUT_DOC(required_size_in_bytes,
           "required_size_in_bytes($self, /)\n--\n\n"
           "How many bytes from the base hold all items.\n\n"
           "Returns\n-------\n"
           "int\n    (max_offset + 1) * itemsize; 0 if there are no items.\n\n"
           "Raises\n------\n"
           "ValueError\n    Items lie before the base: min_offset is negative.\n\n");

PyObject *
layout_method_required_size_in_bytes(PyObject *op, PyObject *Py_UNUSED(unused))
{
    const LayoutObject *self = find_bounds(op);
    if (self->min < 0) {
        layout_fault fault = {LAYOUT_FAULT_NEGATIVE, self->min, 0};
        return errors_from_layout(NULL, "StridedLayout.required_size_in_bytes", &fault);
    }
    return PyLong_FromLongLong((self->max + 1) * self->itemsize); /* checked when it was made */
}

/* ---- yes or no ---- */

/* `closure`: an ANSWER. */
static PyObject *
layout_get_answer(PyObject *op, void *closure)
{
    return Py_NewRef(layout_answer(op, (uint32_t)(uintptr_t)closure) ? Py_True : Py_False);
}

static PyObject *
layout_get_is_dense(PyObject *op, void *Py_UNUSED(closure))
{
    bool is_dense = layout_cast(op)->offset == 0 && layout_answer(op, ANSWER_CONTIGUOUS_ANY);
    return Py_NewRef(is_dense ? Py_True : Py_False);
}

#define TUPLE(name, place, doc) {#name, layout_get_tuple, NULL, PyDoc_STR(doc), (void *)(place)}
#define BOUND(end, doc) \
    {#end "_offset", layout_get_bound, NULL, PyDoc_STR(doc), \
     (void *)offsetof(LayoutObject, end)}
#define ANSWER(name, bit, doc) {#name, layout_get_answer, NULL, PyDoc_STR(doc), (void *)(bit)}

static PyGetSetDef layout_getset[] = {
    TUPLE(shape, KNOWN_SHAPE, "Extents, a tuple of int."),
    TUPLE(strides, KNOWN_STRIDES,
          "Strides in items, a tuple of int; None if the layout was made with strides None, "
          "which means C order."),
    TUPLE(strides_in_bytes, KNOWN_STRIDES_IN_BYTES,
          "Strides in bytes, a tuple of int; None where `strides` is None."),
    MD_FACT(layout, volume, "Number of items, an int: the product of the extents."),
    MD_FACT(layout, slice_offset_in_bytes,
            "Bytes from the base to the item at index 0, an int."),
    TUPLE(stride_order, KNOWN_STRIDE_ORDER,
          "The axes by length of stride, the longest first, a tuple of int; equal strides by "
          "extent, the largest first, then by number."),
    MD_FACT(layout, offset_bounds,
            "(min_offset, max_offset): the items lie within, in items from the "
            "base; (0, -1) if there are none."),
    BOUND(min, "The lowest offset of an item, in items; 0 if there are none."),
    BOUND(max, "The highest offset of an item, in items; -1 if there are none."),
    ANSWER(is_contiguous_c, ANSWER_CONTIGUOUS_C,
           "True if the items follow each other in C order."),
    ANSWER(is_contiguous_f, ANSWER_CONTIGUOUS_F,
           "True if the items follow each other in Fortran order."),
    ANSWER(is_contiguous_any, ANSWER_CONTIGUOUS_ANY,
           "True if the items follow each other in some order of the axes."),
    MD_FACT(layout, is_dense, "True if is_contiguous_any, and slice_offset is 0."),
    ANSWER(is_unique, ANSWER_UNIQUE,
           "True if no two indices are known to share an item.  Layouts that interleave are "
           "called not unique, as the exact answer is expensive."),
    MD_LAST_FACT,
};

static PyMemberDef layout_members[] = {
    {"ndim", T_INT, offsetof(LayoutObject, ndim), READONLY,
     PyDoc_STR("Number of dimensions, an int from 0 to 64.")},
    {"itemsize", T_LONGLONG, offsetof(LayoutObject, itemsize), READONLY,
     PyDoc_STR("Bytes in one item, an int.")},
    {"slice_offset", T_LONGLONG, offsetof(LayoutObject, offset), READONLY,
     PyDoc_STR("Items from the base to the item at index 0, an int.  Only slicing makes it "
               "differ from 0.")},
    {NULL, 0, 0, 0, NULL},
};

/* ---- what every value has ---- */

/* The end of what was written: `text` without its final 0. */
static char *
write_text(char *out, const char *text)
{
    size_t length = strlen(text);
    memcpy(out, text, length);
    return out + length;
}

/* At most 20 characters.  With snprintf, or the repr of tuples, layout_repr takes ten times as
 * long, which is no faster than cuda.core; bench_layout.py holds it to 0.7. */
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
    return layout_index_self(&in, key, &out) < 0 ? NULL : layout_object_new(Py_TYPE(op), &out);
}

static void
layout_dealloc(PyObject *op)
{
    LayoutObject *self = layout_cast(op);
    PyTypeObject *type = Py_TYPE(op);
    for (int i = 0; i < KNOWN_COUNT; i++) {
        Py_XDECREF(self->known[i]);
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
    "    The volume, a stride or an offset does not fit in 64 bits when it is counted in\n"
    "    bytes.\n"
    "ValueError\n"
    "    An extent is negative, there are more than 64, strides and shape differ in length, a\n"
    "    stride in bytes is no multiple of itemsize, or itemsize is below 1.\n"
    "TypeError\n    An argument is not an int.\n\n"
    "Memory and threads: about 250 bytes up to 8 dimensions, in one piece.  Any thread may\n"
    "use it.  A layout made with strides None differs from one with the same strides given\n"
    "explicitly.\n\n"
    "Source: the model is cuda.core._layout._StridedLayout.");

#define AS_CALL(name, text, flags) \
    {text, MD_FASTCALL(layout_method_##name) | (flags), layout_doc_##name},
#define AS_PLAIN(name, text, flags) {text, layout_method_##name, flags, layout_doc_##name},
static PyMethodDef layout_methods[] = {LAYOUT_CALL_LIST(AS_CALL) LAYOUT_PLAIN_LIST(AS_PLAIN)
                                           CALL_PYTHON_REPR_HTML,
                                       {NULL, NULL, 0, NULL}};

static PyType_Slot layout_slots[] = {
    {Py_tp_doc, (void *)layout_doc},
    {Py_tp_new, layout_new},
    {Py_tp_dealloc, layout_dealloc},
    {Py_tp_getset, layout_getset},
    {Py_tp_members, layout_members},
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

/* Store a class method bound, so that a look-up makes no object.  There is no subclass that it
 * would have to be bound to. */
static int
bind_class_method(PyTypeObject *type, PyMethodDef *method)
{
    PyObject *bound = PyCFunction_NewEx(method, (PyObject *)type, NULL);
    int result =
        bound == NULL ? -1 : PyDict_SetItemString(type->tp_dict, method->ml_name, bound);
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
