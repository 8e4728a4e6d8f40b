/* array_numpy.c: see array_numpy.h. */
#include "array_numpy.h"

#include "array_sides.h"
#include "array_map.h"
#include "dtype_type.h"
#include "element.h"
#include "errors.h"

PyObject *
array_numpy_module(const char *function)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL && PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Format(PyExc_ImportError, "%s: this conversion is NumPy's work; install numpy.",
                     function);
    }
    return numpy;
}

/* ---- views ---- */

/* Types that the buffer protocol cannot name go as unsigned integers of their size, and are named
 * again by ml_dtypes on the other side. */
static PyObject *
as_integers(ArrayObject *self)
{
    DLDataType dtype = {kDLUInt, (uint8_t)(dtype_itemsize(self->dtype) * 8), 1};
    strided_layout layout;
    array_get_layout(self, &layout);
    return array_new(state_of((PyObject *)self), (PyObject *)self->buffer, self->byte_offset,
                     &layout, dtype, self->is_readonly);
}

static PyObject *
view_through_buffer(const char *function, PyObject *op)
{
    PyObject *numpy = array_numpy_module(function);
    PyObject *memory = numpy == NULL ? NULL : PyMemoryView_FromObject(op);
    PyObject *result = NULL;
    if (memory != NULL) {
        result = PyObject_CallMethod(numpy, "asarray", "(O)", memory);
    }
    Py_XDECREF(memory);
    Py_XDECREF(numpy);
    return result;
}

static PyObject *
view_renamed(const char *function, ArrayObject *self, PyObject *numpy_dtype)
{
    PyObject *integers = as_integers(self);
    PyObject *plain = integers == NULL ? NULL : view_through_buffer(function, integers);
    PyObject *result = plain == NULL ? NULL : PyObject_CallMethod(plain, "view", "(O)", numpy_dtype);
    Py_XDECREF(plain);
    Py_XDECREF(integers);
    return result;
}

PyObject *
array_numpy_view(const char *function, ArrayObject *self)
{
    if (dtype_buffer_format(self->dtype) != NULL) {
        return view_through_buffer(function, (PyObject *)self);
    }
    if (self->dtype.lanes != 1 || !dtype_is_whole_bytes(self->dtype)) {
        char name[DTYPE_NAME_MAX];
        dtype_write_name(self->dtype, name);
        return PyErr_Format(PyExc_TypeError,
                            "%s: NumPy has no element type like %s in packed memory; view the bytes "
                            "as uint8 first.",
                            function, name);
    }
    PyObject *dtype = dtype_type_from_dl(state_of((PyObject *)self), self->dtype);
    PyObject *numpy_dtype = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "numpy");
    PyObject *result = NULL;
    if (numpy_dtype != NULL) {
        result = view_renamed(function, self, numpy_dtype);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(numpy_dtype);
    return result;
}

/* ---- assignment ---- */

/* What NumPy can read: an Array becomes its NumPy view, and so does whatever speaks DLPack. */
static PyObject *
readable_value(const char *function, md_state *state, PyObject *value)
{
    if (!Py_IS_TYPE(value, state->array_type)) {
        return Py_NewRef(value);
    }
    ArrayObject *array = array_cast(value);
    if (array_storage(array)->mode != BRIDGE_PRIVATE) {
        return array_numpy_view(function, array);
    }
    PyObject *copy = array_copied(array, 'C', BRIDGE_SHARED);
    PyObject *view = copy == NULL ? NULL : array_numpy_view(function, array_cast(copy));
    Py_XDECREF(copy);
    return view;
}

/* dst[...] = value, both NumPy's. */
static int
assign_in_numpy(const char *function, ArrayObject *dst, PyObject *value)
{
    PyObject *readable = readable_value(function, state_of((PyObject *)dst), value);
    PyObject *view = readable == NULL ? NULL : array_numpy_view(function, dst);
    int result = view == NULL ? -1 : PyObject_SetItem(view, Py_Ellipsis, readable);
    Py_XDECREF(view);
    Py_XDECREF(readable);
    return result;
}

int
array_numpy_assign(const char *function, ArrayObject *dst, PyObject *value)
{
    if (array_storage(dst)->mode != BRIDGE_PRIVATE) {
        return assign_in_numpy(function, dst, value);
    }
    PyObject *stage =
        array_allocate(state_of((PyObject *)dst), function, array_storage(dst)->device,
                       BRIDGE_SHARED, dst->ndim, array_shape(dst), dst->dtype, 'C');
    if (stage == NULL) {
        return -1;
    }
    int result = assign_in_numpy(function, array_cast(stage), value);
    if (result == 0) {
        result = array_copy_items(function, dst, array_cast(stage));
    }
    Py_DECREF(stage);
    return result;
}

PyObject *
array_numpy_call(const char *function, ArrayObject *self, const char *method)
{
    PyObject *view = readable_value(function, state_of((PyObject *)self), (PyObject *)self);
    PyObject *result = view == NULL ? NULL : PyObject_CallMethod(view, method, NULL);
    Py_XDECREF(view);
    return result;
}
