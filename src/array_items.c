/* array_items.c: the items of an Array as Python numbers.
 *
 * Calls:   array_map.h for the memory, element.h for single items; NumPy for element types that have no number.
 * Threads: the GIL is held; released round waits.
 */
#include "array.h"
#include "array_map.h"
#include "array_methods.h"
#include "array_numpy.h"
#include "element.h"

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
