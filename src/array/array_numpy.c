/* array_numpy.c: see array_numpy.h. */
#include "array/array_numpy.h"

#include "array/array_copy.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "metal/lookup.h"
#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "values/dtype_type.h"

PyObject *
array_numpy_module(const char *function)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL && PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Format(PyExc_ImportError, "%s: NumPy does this conversion; install numpy.",
                     function);
    }
    return numpy;
}

/* Owned (+1), like `op`; more than LAYOUT_MAX_NDIM deep NumPy refuses the lists anyway. */
static PyObject *
freeze(PyObject *op, int depth)
{
    bool is_list = PyList_CheckExact(op) || PyTuple_CheckExact(op);
    if (!is_list || depth == LAYOUT_MAX_NDIM) {
        return Py_NewRef(op);
    }
    PyObject *entries = PyList_CheckExact(op) ? PyList_AsTuple(op)
                                              : PyTuple_GetSlice(op, 0, PyTuple_GET_SIZE(op));
    for (Py_ssize_t i = 0; entries != NULL && i < PyTuple_GET_SIZE(entries); i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i);
        PyObject *frozen = freeze(entry, depth + 1);
        if (frozen == NULL) {
            Py_CLEAR(entries);
            break;
        }
        PyTuple_SET_ITEM(entries, i, frozen);
        Py_DECREF(entry);
    }
    return entries;
}

PyObject *
array_numpy_freeze(PyObject *op)
{
    return freeze(op, 0);
}

PyObject *
array_numpy_asarray(const char *function, PyObject *op)
{
    PyObject *numpy = array_numpy_module(function);
    PyObject *frozen = numpy == NULL ? NULL : array_numpy_freeze(op);
    PyObject *result =
        frozen == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", frozen);
    Py_XDECREF(frozen);
    Py_XDECREF(numpy);
    return result;
}

/* ---- views ---- */

static PyObject *
view_through_buffer(const char *function, PyObject *op)
{
    PyObject *memory = PyMemoryView_FromObject(op);
    PyObject *result = memory == NULL ? NULL : array_numpy_asarray(function, memory);
    Py_XDECREF(memory);
    return result;
}

PyObject *
array_numpy_as_integers(PyObject *op, DLDataType dtype)
{
    char name[8]; /* "uint64" is the longest */
    PyOS_snprintf(name, sizeof name, "uint%d", (int)dtype_itemsize(dtype) * 8);
    return PyObject_CallMethod(op, "view", "s", name);
}

/* Items that the buffer protocol cannot name go to NumPy as integers. */
static PyObject *
view_renamed(const char *function, ArrayObject *self, PyObject *numpy_dtype)
{
    PyObject *integers = array_numpy_as_integers((PyObject *)self, self->dtype);
    PyObject *plain = integers == NULL ? NULL : view_through_buffer(function, integers);
    PyObject *result =
        plain == NULL ? NULL : PyObject_CallMethod(plain, "view", "(O)", numpy_dtype);
    Py_XDECREF(plain);
    Py_XDECREF(integers);
    return result;
}

PyObject *
array_numpy_dtype(ArrayObject *self)
{
    PyObject *dtype = dtype_type_from_dl(state_of((PyObject *)self), self->dtype);
    PyObject *result = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "numpy");
    Py_XDECREF(dtype);
    return result;
}

PyObject *
array_numpy_view(const char *function, ArrayObject *self)
{
    if (dtype_buffer_format(self->dtype) != NULL) {
        return view_through_buffer(function, (PyObject *)self);
    }
    PyObject *dtype = array_numpy_dtype(self);
    PyObject *result = dtype == NULL ? NULL : view_renamed(function, self, dtype);
    Py_XDECREF(dtype);
    return result;
}

/* ---- assignment ---- */

bool
array_numpy_can_view(const ArrayObject *self)
{
    return array_storage(self)->mode != BRIDGE_PRIVATE && !array_is_packed(self);
}

/* -1 with TypeError: NumPy has no type of several lanes. */
static int
require_lane(const char *function, const ArrayObject *self)
{
    if (self->dtype.lanes == 1) {
        return 0;
    }
    return errors_raise(PyExc_TypeError,
                        "%s: NumPy, which converts items, has no type of %d lanes; convert "
                        "a.view('%s'), whose last axis counts the lanes.",
                        function, (int)self->dtype.lanes, dtype_find(self->dtype)->name);
}

PyObject *
array_numpy_copy(const char *function, ArrayObject *self)
{
    if (require_lane(function, self) < 0) {
        return NULL;
    }
    array_creation what = array_like(self);
    what.mode = BRIDGE_SHARED;
    what.is_padded = !dtype_is_whole_bytes(self->dtype);
    timeline_because(TIMELINE_PRIVATE);
    PyObject *copy = array_copied(function, self, &what, NULL);
    PyObject *view = copy == NULL ? NULL : array_numpy_view(function, array_cast(copy));
    Py_XDECREF(copy);
    return view;
}

/* What NumPy can read: an Array becomes its NumPy view, and so does whatever speaks DLPack. */
static PyObject *
readable_value(const char *function, md_state *state, PyObject *value)
{
    if (!Py_IS_TYPE(value, state->array_type)) {
        return array_numpy_freeze(value);
    }
    ArrayObject *array = array_cast(value);
    return array_numpy_can_view(array) ? array_numpy_view(function, array)
                                       : array_numpy_copy(function, array);
}

long
array_numpy_builtin(PyObject *dtype)
{
    PyObject *kind = PyObject_GetAttrString(dtype, "isbuiltin");
    long number = kind != NULL && PyLong_Check(kind) ? PyLong_AsLong(kind) : -1;
    Py_XDECREF(kind);
    PyErr_Clear();
    return number;
}

bool
array_numpy_is_array(PyObject *op)
{
    return strcmp(Py_TYPE(op)->tp_name, "numpy.ndarray") == 0;
}

/* What `op` is a view of: owned (+1); NULL: nothing.  Raises nothing. */
static PyObject *
find_base(PyObject *op)
{
    PyObject *base = NULL;
    if (PyMemoryView_Check(op)) {
        base = Py_XNewRef(PyMemoryView_GET_BUFFER(op)->obj);
    }
    else if (array_numpy_is_array(op)) {
        base = PyObject_GetAttrString(op, "base");
        PyErr_Clear();
    }
    if (base == Py_None) {
        Py_CLEAR(base);
    }
    return base;
}

bool
array_numpy_is_honest(PyObject *op)
{
    if (lookup_knows_no_readonly()) {
        /* mutant survives (constant returned): who asks further finds none either */
        return true;
    }
    PyObject *inner = Py_NewRef(op);
    for (PyObject *base = find_base(inner); base != NULL; base = find_base(inner)) {
        Py_SETREF(inner, base);
    }
    bool is_honest = PyObject_CheckBuffer(inner);
    Py_DECREF(inner);
    return is_honest;
}

/* view[...] = value.  ml_dtypes knows no cast between some of its own types (int4 to uint4):
 * they go by way of float32, or complex64, which hold every number of every one of them. */
static int
set_items(PyObject *view, PyObject *value)
{
    if (PyObject_SetItem(view, Py_Ellipsis, value) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyObject *refusal = errors_take();
    PyObject *dtype = PyObject_GetAttrString(value, "dtype");
    if (dtype == NULL || array_numpy_builtin(dtype) != NUMPY_REGISTERED) {
        Py_XDECREF(dtype);
        errors_restore(refusal); /* what has no dtype is no array, which is no error */
        return -1;
    }
    Py_DECREF(refusal);
    PyObject *name = PyObject_GetAttrString(dtype, "name");
    const char *wide = name != NULL && PyUnicode_CompareWithASCIIString(name, "complex32") == 0
                           ? "complex64"
                           : "float32";
    PyObject *between = name == NULL ? NULL : PyObject_CallMethod(value, "astype", "s", wide);
    int result = between == NULL ? -1 : PyObject_SetItem(view, Py_Ellipsis, between);
    Py_XDECREF(between);
    Py_XDECREF(name);
    Py_DECREF(dtype);
    return result;
}

/* dst[...] = value, both NumPy's. */
static int
assign_in_numpy(const char *function, ArrayObject *dst, PyObject *value)
{
    PyObject *readable = readable_value(function, state_of((PyObject *)dst), value);
    PyObject *view = readable == NULL ? NULL : array_numpy_view(function, dst);
    int result = view == NULL ? -1 : set_items(view, readable);
    Py_XDECREF(view);
    Py_XDECREF(readable);
    return result;
}

int
array_numpy_assign(const char *function, ArrayObject *dst, PyObject *value)
{
    if (require_lane(function, dst) < 0) {
        return -1;
    }
    if (array_numpy_can_view(dst)) {
        return assign_in_numpy(function, dst, value);
    }
    array_creation what = array_like(dst);
    what.mode = BRIDGE_SHARED;
    what.is_padded = !dtype_is_whole_bytes(dst->dtype);
    PyObject *stage = array_allocate(state_of((PyObject *)dst), function, &what);
    if (stage == NULL) {
        return -1;
    }
    int result = assign_in_numpy(function, array_cast(stage), value);
    if (result == 0) {
        array_side to, from;
        array_side_set(&to, dst);
        array_side_set(&from, array_cast(stage));
        result = array_copy_sides(function, &to, &from, NULL);
    }
    Py_DECREF(stage);
    return result;
}

/* ---- refusals ---- */

void
array_numpy_explain_refusal(const char *function, PyObject *producer)
{
    if (!array_numpy_is_array(producer) || !PyErr_ExceptionMatches(PyExc_BufferError)) {
        return;
    }
    PyObject *refusal = errors_take();
    PyObject *name = PyUnicode_FromString(function);
    PyObject *text = name == NULL ? NULL : call_python(CALL_REFUSED_EXPORT, producer, name);
    Py_XDECREF(name);
    if (text == NULL || text == Py_None) {
        errors_restore(refusal); /* NumPy's own words will do */
    }
    else {
        PyErr_SetObject(PyExc_BufferError, text);
        Py_DECREF(refusal);
    }
    Py_XDECREF(text);
}

/* ---- conversion ---- */

PyObject *
array_numpy_convert(const char *function, ArrayObject *self, DLDataType dtype,
                    bridge_storage mode)
{
    array_creation what = array_like(self);
    what.mode = mode;
    what.dtype = dtype;
    what.is_padded &= !dtype_is_whole_bytes(dtype) && dtype.lanes == 1;
    PyObject *result = array_allocate(state_of((PyObject *)self), function, &what);
    if (result != NULL &&
        array_numpy_assign(function, array_cast(result), (PyObject *)self) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

const char array_doc_astype[] =
    "astype($self, dtype, /, *, copy=True)\n--\n\n"
    "The items as numbers of another type.\n\n"
    "Parameters\n----------\n"
    "dtype : dtype or a name of one\n"
    "copy : bool\n"
    "    False: return a view if the type is the same already; otherwise copy.\n\n"
    "Returns\n-------\n"
    "Array\n    In C order, of the same shape and storage, on the same device.\n\n"
    "The rule is that of NumPy's astype with casting='unsafe': every pair of types converts.\n"
    "A float rounds to nearest, ties to even; what is larger than the target's largest number\n"
    "becomes infinity; NaN if the target has no infinity; its largest number if it has\n"
    "neither.  Floats to integers drop the fraction; integers to narrower ones keep the low\n"
    "bits; complex to real drops the imaginary part, with NumPy's ComplexWarning; as bool,\n"
    "everything but 0 is True.  The result is undefined for infinity and NaN as integers, and\n"
    "for NaN in a type that has none.\n\n"
    "Raises\n------\n"
    "TypeError\n    Either type has several lanes: view(dtype) first.\n"
    "ImportError\n"
    "    NumPy is not installed, or ml_dtypes for types that NumPy lacks: they convert.\n"
    "MemoryError, MetalError";

ARGS_METHOD(array_method_astype, op, "Array.astype", 1, 1, 1, "dtype", "copy")
{
    ArrayObject *self = array_cast(op);
    DLDataType dtype;
    int copy = 1;
    if (dtype_type_convert(state_of(op), function, values[0], &dtype) < 0 ||
        (values[1] != NULL && (copy = PyObject_IsTrue(values[1])) < 0)) {
        return NULL;
    }
    if (!dtype_equal(dtype, self->dtype)) {
        return array_numpy_convert(function, self, dtype, array_storage(self)->mode);
    }
    array_creation what = array_like(self);
    return copy ? array_copied(function, self, &what, NULL) : array_alias(self);
}
