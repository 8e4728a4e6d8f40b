/* layout_type_facts.c: the attributes of a StridedLayout; see layout_type_object.h. */
#include "values/layout_type_object.h"

/* ---- tuples, made once ---- */

/* The numbers of a tuple, to be kept.  False with OverflowError: in an Array's layout a stride
 * that is never taken may fit in items, and not in bytes. */
static bool
work_out(PyObject *op, intptr_t place, int64_t *out)
{
    LayoutObject *self = layout_cast(op);
    strided_layout layout;
    int axes[LAYOUT_MAX_NDIM];
    layout_fault fault = {LAYOUT_FAULT_OVERFLOW, 0, 0};
    layout_read(op, &layout);
    if (place == KNOWN_STRIDE_ORDER) {
        layout_stride_order(&layout, axes);
    }
    for (int axis = 0; axis < layout.ndim; axis++) {
        switch (place) {
        case KNOWN_SHAPE: out[axis] = layout.shape[axis]; break;
        case KNOWN_STRIDES: out[axis] = layout.strides[axis]; break;
        case KNOWN_STRIDE_ORDER: out[axis] = self->is_implicit ? axis : axes[axis]; break;
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
layout_get_ndim(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(layout_cast(op)->ndim);
}

static PyObject *
layout_get_itemsize(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(layout_cast(op)->itemsize);
}

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
layout_get_slice_offset(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(layout_cast(op)->offset);
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

static PyObject *
layout_get_min_offset(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(find_bounds(op)->min);
}

static PyObject *
layout_get_max_offset(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(find_bounds(op)->max);
}

const char layout_doc_required_size_in_bytes[] =
    "required_size_in_bytes($self, /)\n"
    "--\n\n"
    "How many bytes from the base hold all items.\n\n"
    "Returns\n"
    "-------\n"
    "int\n"
    "    (max_offset + 1) * itemsize; 0 if there are no items.\n\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    Items lie before the base: min_offset is negative.\n\n"
    "Any thread may call it.\n\n"
    "Source: cuda.core._layout._StridedLayout.required_size_in_bytes.";

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

bool
layout_answer(PyObject *op, uint32_t bit)
{
    LayoutObject *self = layout_cast(op);
    uint32_t kept = __atomic_load_n(&self->answers, __ATOMIC_RELAXED);
    if (kept & bit) {
        return kept >> 16 & bit;
    }
    strided_layout layout;
    layout_read(op, &layout);
    bool is_true = bit == ANSWER_CONTIGUOUS_C     ? layout_is_contiguous_c(&layout)
                   : bit == ANSWER_CONTIGUOUS_F   ? layout_is_contiguous_f(&layout)
                   : bit == ANSWER_CONTIGUOUS_ANY ? layout_is_contiguous_any(&layout)
                                                  : layout_is_unique(&layout);
    __atomic_fetch_or(&self->answers, bit | (is_true ? bit << 16 : 0), __ATOMIC_RELEASE);
    return is_true;
}

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

#define FACT(name, doc) {#name, layout_get_##name, NULL, PyDoc_STR(doc), NULL}
#define TUPLE(name, place, doc) {#name, layout_get_tuple, NULL, PyDoc_STR(doc), (void *)(place)}
#define ANSWER(name, bit, doc) {#name, layout_get_answer, NULL, PyDoc_STR(doc), (void *)(bit)}

PyGetSetDef layout_getset[] = {
    FACT(ndim, "Number of dimensions, an int from 0 to 64."),
    TUPLE(shape, KNOWN_SHAPE, "Extents, a tuple of int."),
    TUPLE(strides, KNOWN_STRIDES,
          "Strides in items, a tuple of int; None if the layout was made with strides "
          "None, which means C order."),
    TUPLE(strides_in_bytes, KNOWN_STRIDES_IN_BYTES,
          "Strides in bytes, a tuple of int; None where `strides` is None."),
    FACT(itemsize, "Bytes in one item, an int."),
    FACT(volume, "Number of items, an int: the product of the extents."),
    FACT(slice_offset,
         "Items from the base to the item at index 0, an int.  Only slicing makes "
         "it differ from 0."),
    FACT(slice_offset_in_bytes, "Bytes from the base to the item at index 0, an int."),
    TUPLE(stride_order, KNOWN_STRIDE_ORDER,
          "The axes by length of stride, the longest first, a tuple of int; equal "
          "strides by extent, the largest first, then by number."),
    FACT(offset_bounds,
         "(min_offset, max_offset): the items lie within, in items from the base; "
         "(0, -1) if there are none."),
    FACT(min_offset, "The lowest offset of an item, in items; 0 if there are none."),
    FACT(max_offset, "The highest offset of an item, in items; -1 if there are none."),
    ANSWER(is_contiguous_c, ANSWER_CONTIGUOUS_C,
           "True if the items follow each other in C order."),
    ANSWER(is_contiguous_f, ANSWER_CONTIGUOUS_F,
           "True if the items follow each other in Fortran order."),
    ANSWER(is_contiguous_any, ANSWER_CONTIGUOUS_ANY,
           "True if the items follow each other in some order of the axes."),
    FACT(is_dense, "True if is_contiguous_any, and slice_offset is 0."),
    ANSWER(is_unique, ANSWER_UNIQUE,
           "True if no two indices are known to share an item.  Layouts that interleave "
           "are called not unique, as the exact answer is expensive."),
    {NULL, NULL, NULL, NULL, NULL},
};
