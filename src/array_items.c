/* array_items.c: items of an Array in and out: copies, fills, assignment, Python numbers.
 *
 * Calls:   array_map.h for the memory, copy.h for the moving, element.h for single items; NumPy for
 *          conversions between element types, imported when first needed.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "args.h"
#include "array.h"
#include "array_map.h"
#include "array_methods.h"
#include "array_numpy.h"
#include "copy.h"
#include "dtype_type.h"
#include "element.h"
#include "errors.h"
#include "storage_mode.h"

/* ---- copies ---- */

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
    if (mapping.nbytes > 0) {
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

static int
assign_array(ArrayObject *dst, ArrayObject *src)
{
    strided_layout in, out;
    layout_fault fault;
    array_get_layout(src, &in);
    if (!layout_broadcast(&in, dst->ndim, array_shape(dst), &out, &fault)) {
        (void)errors_from_layout(state_of((PyObject *)dst), "Array.__setitem__", &fault);
        return -1;
    }
    if (layout_volume(&out) == 0) {
        return 0;
    }
    PyObject *view = array_view(src, &out);
    if (view == NULL) {
        return -1;
    }
    int result = array_copy_items("Array.__setitem__", dst, array_cast(view));
    Py_DECREF(view);
    return result;
}

static int
assign(ArrayObject *dst, PyObject *value)
{
    md_state *state = state_of((PyObject *)dst);
    if (dst->is_readonly) {
        PyErr_SetString(PyExc_ValueError,
                        "Array.__setitem__: the array is read-only; write to a copy() of it.");
        return -1;
    }
    if (Py_IS_TYPE(value, state->array_type) &&
        dtype_equal(array_cast(value)->dtype, dst->dtype)) {
        return assign_array(dst, array_cast(value));
    }
    bool is_scalar = PyFloat_CheckExact(value) || PyLong_CheckExact(value) ||
                     PyBool_Check(value) || PyComplex_CheckExact(value);
    if (is_scalar && element_is_number(dst->dtype)) {
        return array_fill("Array.__setitem__", dst, value);
    }
    return array_numpy_assign("Array.__setitem__", dst, value);
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

/* ---- Python numbers ---- */

static PyObject *
refuse_numbers(const char *function, ArrayObject *self)
{
    char name[DTYPE_NAME_MAX];
    dtype_write_name(self->dtype, name);
    return PyErr_Format(PyExc_TypeError,
                        "%s: %s items have no Python number; use np.asarray(a), or view the bytes "
                        "as uint8.",
                        function, name);
}

/* The one item of an array of size 1: owned (+1). */
static PyObject *
only_item(const char *function, ArrayObject *self)
{
    if (self->nitems != 1) {
        return PyErr_Format(PyExc_ValueError,
                            "%s: only an array of one item is a number; this one has %lld.",
                            function, (long long)self->nitems);
    }
    if (!element_is_number(self->dtype)) {
        return array_numpy_call(function, self, "item");
    }
    array_mapping mapping;
    if (array_map(function, self, MAP_READ, &mapping) < 0) {
        return NULL;
    }
    PyObject *number = element_unpack(self->dtype, mapping.origin);
    (void)array_unmap(function, self, &mapping, false);
    return number;
}

const char array_doc_item[] =
    "item($self, /)\n--\n\n"
    "The only item as a bool, int, float or complex.\n\n"
    "Waits for pending GPU work on the buffer.  Raises ValueError unless size is 1.";

PyObject *
array_method_item(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return only_item("Array.item", array_cast(op));
}

static PyObject *
list_axis(const ArrayObject *self, int axis, const char *origin)
{
    if (axis == self->ndim) {
        return element_unpack(self->dtype, origin);
    }
    int64_t extent = array_shape(self)[axis];
    int64_t step = array_strides(self)[axis] * dtype_itemsize(self->dtype);
    PyObject *list = PyList_New((Py_ssize_t)extent);
    for (int64_t i = 0; list != NULL && i < extent; i++) {
        PyObject *entry = list_axis(self, axis + 1, origin + i * step);
        if (entry == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, entry);
    }
    return list;
}

const char array_doc_tolist[] =
    "tolist($self, /)\n--\n\n"
    "The items as nested lists of Python numbers; a number for 0 dimensions.\n\n"
    "Waits for pending GPU work on the buffer.";

PyObject *
array_method_tolist(PyObject *op, PyObject *Py_UNUSED(unused))
{
    ArrayObject *self = array_cast(op);
    if (!element_is_number(self->dtype)) {
        return dtype_is_whole_bytes(self->dtype)
                   ? array_numpy_call("Array.tolist", self, "tolist")
                   : refuse_numbers("Array.tolist", self);
    }
    array_mapping mapping;
    if (array_map("Array.tolist", self, MAP_READ, &mapping) < 0) {
        return NULL;
    }
    PyObject *list = list_axis(self, 0, mapping.origin);
    (void)array_unmap("Array.tolist", self, &mapping, false);
    return list;
}

int
array_bool(PyObject *op)
{
    PyObject *number = only_item("bool(Array)", array_cast(op));
    int result = number == NULL ? -1 : PyObject_IsTrue(number);
    Py_XDECREF(number);
    return result;
}

/* int(), float(): what the function makes of the only item. */
static PyObject *
convert_item(const char *function, PyObject *op, PyObject *(*convert)(PyObject *))
{
    PyObject *number = only_item(function, array_cast(op));
    PyObject *result = number == NULL ? NULL : convert(number);
    Py_XDECREF(number);
    return result;
}

PyObject *
array_int(PyObject *op)
{
    return convert_item("int(Array)", op, PyNumber_Long);
}

PyObject *
array_float(PyObject *op)
{
    return convert_item("float(Array)", op, PyNumber_Float);
}

PyObject *
array_index(PyObject *op)
{
    ArrayObject *self = array_cast(op);
    if (self->dtype.code != kDLInt && self->dtype.code != kDLUInt) {
        return PyErr_Format(PyExc_TypeError,
                            "Only an Array of one integer can be used as an index.");
    }
    return convert_item("index(Array)", op, PyNumber_Index);
}

const char array_doc_complex[] = "__complex__($self, /)\n--\n\nThe only item as a complex.";

PyObject *
array_method_complex(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *number = only_item("complex(Array)", array_cast(op));
    if (number == NULL) {
        return NULL;
    }
    Py_complex value = PyComplex_AsCComplex(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? NULL : PyComplex_FromCComplex(value);
}
