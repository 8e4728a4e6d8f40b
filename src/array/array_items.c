/* array_items.c: the items of an Array as Python numbers.
 *
 * Calls:   array_map.h for the memory, element.h for single items; NumPy for element types
 *          that have no number.
 * Threads: the GIL is held; released round waits.
 */
#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "python/args.h"
#include "python/element.h"
#include "python/errors.h"

/* ---- Python numbers ---- */

#define ONE_BY_ONE "Take one, a[i], or all of them, a.tolist()."

/* The one item of an array of size 1: owned (+1).  NULL with `refusal` for any other size,
 * whose sentence ends with `way_out`. */
static PyObject *
only_item(const char *function, ArrayObject *self, PyObject *refusal, const char *way_out)
{
    if (self->nitems != 1) {
        return PyErr_Format(refusal,
                            "%s: only an array of one item is a number; this one has %lld.  %s",
                            function, (long long)self->nitems, way_out);
    }
    array_mapping mapping;
    if (array_map(function, self, MAP_READ, &mapping) < 0) {
        return NULL;
    }
    PyObject *number = element_unpack(self->dtype, mapping.origin, self->first_bit);
    (void)array_unmap(function, self, &mapping, false);
    return number;
}

const char array_doc_item[] =
    "item($self, /, *index)\n--\n\n"
    "One item as a bool, int, float or complex; of several lanes as a tuple of them.\n\n"
    "Parameters\n----------\n"
    "index : int\n"
    "    One for each axis, negative ones from the end; none for the only item of an array.\n\n"
    "Raises\n------\n"
    "ValueError\n"
    "    No index is given and size is not 1, or there is not one index for each axis.\n"
    "IndexError\n    An index is out of range.\n\n"
    "Waits for pending GPU work on the buffer.  Packed items are read on any bit.";

PyObject *
array_method_item(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    ArrayObject *self = array_cast(op);
    strided_layout layout;
    layout_fault fault;
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        return PyErr_Format(PyExc_TypeError, "Array.item() takes no keywords.");
    }
    if (nargs == 0) {
        return only_item("Array.item", self, PyExc_ValueError, ONE_BY_ONE);
    }
    if (nargs != self->ndim) {
        return PyErr_Format(PyExc_ValueError,
                            "Array.item: %zd indices are given for %d dimensions.", nargs,
                            self->ndim);
    }
    array_get_layout(self, &layout);
    for (int axis = 0; axis < self->ndim; axis++) {
        int64_t index;
        if (args_int64("Array.item", "index", args[axis], &index) < 0) {
            return NULL;
        }
        if (!layout_index_axis(&layout, axis, index, &layout.offset, &fault)) {
            return errors_from_layout(state_of(op), "Array.item", &fault);
        }
    }
    layout.ndim = 0;
    PyObject *view = array_view_bits(self, &layout);
    PyObject *number =
        view == NULL ? NULL
                     : only_item("Array.item", array_cast(view), PyExc_ValueError, ONE_BY_ONE);
    Py_XDECREF(view);
    return number;
}

/* `first_bit` of this item, from `origin` on. */
static PyObject *
list_axis(const ArrayObject *self, int axis, const char *origin, int64_t first_bit)
{
    if (axis == self->ndim) {
        return element_unpack(self->dtype, origin + (first_bit >> 3), first_bit & 7);
    }
    int64_t extent = array_shape(self)[axis];
    /* the stride of an axis that takes no step can be anything */
    int64_t step_bits = extent > 1 ? array_strides(self)[axis] * array_item_bits(self) : 0;
    PyObject *list = PyList_New((Py_ssize_t)extent);
    for (int64_t i = 0; list != NULL && i < extent; i++) {
        PyObject *entry = list_axis(self, axis + 1, origin, first_bit + i * step_bits);
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
    "Items of several lanes are tuples.  Waits for pending GPU work on the buffer.";

PyObject *
array_method_tolist(PyObject *op, PyObject *Py_UNUSED(unused))
{
    ArrayObject *self = array_cast(op);
    array_mapping mapping;
    if (array_map("Array.tolist", self, MAP_READ, &mapping) < 0) {
        return NULL;
    }
    PyObject *list = list_axis(self, 0, mapping.origin, self->first_bit);
    (void)array_unmap("Array.tolist", self, &mapping, false);
    return list;
}

/* The only item, where it is a number: owned (+1).  TypeError for several items, as NumPy has
 * it, and for items of several lanes. */
static PyObject *
only_number(const char *function, PyObject *op)
{
    ArrayObject *self = array_cast(op);
    if (self->dtype.lanes != 1) {
        return PyErr_Format(
            PyExc_TypeError,
            "%s: an item of %d lanes is not a number; a.item() returns a tuple.", function,
            (int)self->dtype.lanes);
    }
    return only_item(function, self, PyExc_TypeError, ONE_BY_ONE);
}

int
array_bool(PyObject *op)
{
    ArrayObject *self = array_cast(op);
    PyObject *number = self->nitems == 1
                           ? only_number("bool(Array)", op)
                           : only_item("bool(Array)", self, PyExc_ValueError,
                                       "Ask np.asarray(a).any(), .all(), or a.size > 0.");
    int result = number == NULL ? -1 : PyObject_IsTrue(number);
    Py_XDECREF(number);
    return result;
}

/* int(), float(): what the function makes of the only item. */
static PyObject *
convert_item(const char *function, PyObject *op, PyObject *(*convert)(PyObject *))
{
    PyObject *number = only_number(function, op);
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
    bool is_integer = self->dtype.code == kDLInt || self->dtype.code == kDLUInt;
    /* An array of one axis is none, as in NumPy: bytes(a) tries an index first, of which it
     * would make so many zeros, and a[i] would lose the axis.  TypeError: then bytes(a) takes
     * the buffer. */
    if (!is_integer || self->ndim != 0) {
        return PyErr_Format(PyExc_TypeError, "Only an Array of one integer and no axes can be "
                                             "used as an index; write a[i], or a.item().");
    }
    return convert_item("index(Array)", op, PyNumber_Index);
}

const char array_doc_complex[] = "__complex__($self, /)\n--\n\nThe only item as a complex.";

PyObject *
array_method_complex(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *number = only_number("complex(Array)", op);
    if (number == NULL) {
        return NULL;
    }
    Py_complex value = PyComplex_AsCComplex(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? NULL : PyComplex_FromCComplex(value);
}

const char array_doc_format[] =
    "__format__($self, spec, /)\n--\n\n"
    "Format the only item of an array without axes, as in f'{a[0]:.3f}'; str(a) for ''.\n\n"
    "Raises\n------\nTypeError\n    A format is given, and the array has axes.";

PyObject *
array_method_format(PyObject *op, PyObject *spec)
{
    if (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0) {
        return PyObject_Str(op);
    }
    if (array_cast(op)->ndim != 0) {
        return PyErr_Format(PyExc_TypeError,
                            "format(Array): %R formats one number, and this array has %d "
                            "axes.  Take one item, a[i].",
                            spec, array_cast(op)->ndim);
    }
    PyObject *number = only_number("format(Array)", op);
    PyObject *text = number == NULL ? NULL : PyObject_Format(number, spec);
    Py_XDECREF(number);
    return text;
}
