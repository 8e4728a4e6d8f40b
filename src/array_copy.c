/* array_copy.c: items in and out of Arrays: copy_from, copy_to, copy, fill and a[key] = value.
 *
 * Calls:   array_sides.h for copies, copy.h for fills, NumPy for conversions between element types.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "args.h"
#include "array.h"
#include "array_map.h"
#include "array_methods.h"
#include "array_numpy.h"
#include "array_sides.h"
#include "copy.h"
#include "element.h"
#include "storage_mode.h"

/* ---- copy_from, copy_to ---- */

const char array_doc_copy_from[] =
    "copy_from($self, src, /)\n--\n\n"
    "Write the items of `src` into this array.\n\n"
    "Parameters\n----------\n"
    "src : Array, or what speaks DLPack or the buffer protocol\n"
    "    Of the same element type; broadcast to the shape of this array.  It may overlap this\n"
    "    array: the result is as if it had been read whole first.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type: a[...] = src converts.\n"
    "ValueError\n    The shape does not fit, or this array is read-only.\n"
    "MemoryError, MetalError\n\n"
    "Any storage on either side.  Nothing is written where it raises TypeError or ValueError.\n"
    "Returns when it is done; the GIL is released for large copies, which may use several\n"
    "threads.";

PyObject *
array_method_copy_from(PyObject *op, PyObject *value)
{
    static const import_request as_it_is = {.copy = -1};
    array_side to, from;
    array_side_set(&to, array_cast(op));
    if (array_side_open(&from, state_of(op), value, &as_it_is) < 0) {
        return NULL;
    }
    int result = array_sides_copy("Array.copy_from", &to, &from);
    array_side_close(&from);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char array_doc_copy_to[] =
    "copy_to($self, dst, /)\n--\n\n"
    "Write the items of this array into `dst`.\n\n"
    "Parameters\n----------\n"
    "dst : Array, or what lends its memory by DLPack or the buffer protocol\n"
    "    Writable, of the same element type; this array is broadcast to its shape.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type.\n"
    "ValueError\n    The shape does not fit, or `dst` is read-only.\n"
    "CopyRequiredError\n    The memory of `dst` cannot be shared, so that nothing could be written to it.\n"
    "MemoryError, MetalError\n\n"
    "Otherwise as copy_from().";

PyObject *
array_method_copy_to(PyObject *op, PyObject *value)
{
    static const import_request shared = {.copy = 0};
    array_side to, from;
    array_side_set(&from, array_cast(op));
    if (array_side_open(&to, state_of(op), value, &shared) < 0) {
        return NULL;
    }
    int result = array_sides_copy("Array.copy_to", &to, &from);
    array_side_close(&to);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- copies in memory of their own ---- */

PyObject *
array_copied(ArrayObject *self, char order, bridge_storage mode)
{
    PyObject *op = array_allocate(state_of((PyObject *)self), "Array.copy",
                                  array_storage(self)->device, mode, self->ndim,
                                  array_shape(self), self->dtype, order);
    if (op != NULL && array_copy_items("Array.copy", array_cast(op), self) < 0) {
        Py_CLEAR(op);
    }
    return op;
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
    "copy($self, /, order='C', storage=None)\n--\n\n"
    "The items in memory of their own, on the same device.\n\n"
    "Parameters\n----------\n"
    "order : {'C', 'F', 'A', 'K'}\n"
    "    'A' and 'K' keep Fortran order where the source has it, else C.\n"
    "storage : {'shared', 'managed', 'private'}, optional\n"
    "    Default: the storage of this array.\n\n"
    "Returns\n-------\nArray\n    Writable; the copy is complete.\n\n"
    "Raises\n------\nMemoryError, MetalError";

PyObject *
array_method_copy(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy", 0, 2, 0, {"order", "storage", NULL}};
    ArrayObject *self = array_cast(op);
    PyObject *values[2];
    char order;
    bridge_storage mode = array_storage(self)->mode;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_order(self, values[0], &order) < 0) {
        return NULL;
    }
    if (values[1] != NULL && values[1] != Py_None &&
        storage_mode_convert(state_of(op), "Array.copy", values[1], NULL, &mode) < 0) {
        return NULL;
    }
    return array_copied(self, order, mode);
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

static int
fill_packed(const char *function, ArrayObject *self, const char *item)
{
    array_mapping mapping;
    strided_layout layout;
    if (array_map(function, self, MAP_WRITE, &mapping) < 0) {
        return -1;
    }
    array_get_layout(self, &layout);
    if (mapping.nbytes >= LARGE_COPY) {
        Py_BEGIN_ALLOW_THREADS
        copy_fill(&layout, mapping.origin, item);
        Py_END_ALLOW_THREADS
    }
    else if (mapping.nbytes > 0) {
        copy_fill(&layout, mapping.origin, item);
    }
    return array_unmap(function, self, &mapping, true);
}

int
array_fill(const char *function, ArrayObject *self, PyObject *value)
{
    char item[16];
    if (!element_is_number(self->dtype)) {
        return array_numpy_assign(function, self, value);
    }
    if (element_pack(function, self->dtype, value, item) < 0) {
        return -1;
    }
    return fill_packed(function, self, item);
}

const char array_doc_fill[] =
    "fill($self, value, /)\n--\n\n"
    "Write one number into every item.\n\n"
    "Raises\n------\n"
    "TypeError\n    The value is not a number of the element's kind.\n"
    "OverflowError\n    An integer does not fit the element type.\n"
    "ValueError\n    The array is read-only.";

PyObject *
array_method_fill(PyObject *op, PyObject *value)
{
    if (array_fill("Array.fill", array_cast(op), value) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
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
                     PyBool_Check(value) || PyComplex_CheckExact(value);
    if (is_scalar && element_is_number(dst->dtype)) {
        return array_fill(function, dst, value);
    }
    array_side to, from;
    if (!side_open_same(&from, dst, value)) {
        return array_numpy_assign(function, dst, value);
    }
    array_side_set(&to, dst);
    int result = array_sides_copy(function, &to, &from);
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
    PyObject *view = array_subscript(op, key);
    if (view == NULL) {
        return -1;
    }
    int result = assign(array_cast(view), value);
    Py_DECREF(view);
    return result;
}
