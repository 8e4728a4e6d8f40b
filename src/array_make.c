/* array_make.c: empty, zeros, full, empty_like and asarray.
 *
 * Calls:   array.h to allocate, dlpack_import.h for memory of others, NumPy for lists and conversions.
 * Threads: the GIL is held; released while allocating, waiting and copying.
 */
#include "array_make.h"

#include "args.h"
#include "array.h"
#include "array_numpy.h"
#include "device.h"
#include "dlpack_producer.h"
#include "dtype_type.h"
#include "errors.h"
#include "layout_type.h"
#include "shared_memory.h"
#include "storage_mode.h"

/* ---- empty, zeros, full ---- */

/* What every allocating function is told. */
typedef struct creation {
    int ndim;
    int64_t shape[LAYOUT_MAX_NDIM];
    DLDataType dtype;
    const device_record *device;
    bridge_storage mode;
} creation;

static int
convert_creation(md_state *state, const char *function, PyObject *shape, PyObject *dtype,
                 PyObject *device, PyObject *storage, creation *out)
{
    out->dtype = (DLDataType){kDLFloat, 32, 1};
    if (args_int64s(function, "shape", shape, out->shape, LAYOUT_MAX_NDIM, &out->ndim) < 0 ||
        (dtype != NULL && dtype != Py_None &&
         dtype_type_convert(state, function, dtype, &out->dtype) < 0)) {
        return -1;
    }
    out->device = device_convert(state, function, device);
    if (out->device == NULL) {
        return -1;
    }
    return storage_mode_convert(state, function, storage, out->device, &out->mode);
}

static PyObject *
allocate(md_state *state, const char *function, const creation *what)
{
    return array_allocate(state, function, what->device, what->mode, what->ndim, what->shape,
                          what->dtype, 'C');
}

static int
set_zero(md_state *state, const char *function, PyObject *array)
{
    metal_storage *storage = array_storage(array_cast(array));
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_set_bytes(storage, 0, storage->nbytes, 0, &error);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state, function, status, &error, storage->nbytes);
        return -1;
    }
    return 0;
}

#define CREATION_PARAMETERS                                                            \
    "shape : int or tuple of int\n"                                                    \
    "dtype : dtype or what names one\n    Default: float32.\n"                         \
    "device : Device or str, optional\n    Default: the system's default device.\n"    \
    "storage : {'shared', 'managed', 'private'}, optional\n"                           \
    "    Default: get_storage_mode().\n\n"                                             \
    "Returns\n-------\nArray\n    In C order, with memory of its own.\n\n"             \
    "Raises\n------\n"                                                                 \
    "ValueError\n    An extent is negative, or the product overflows.\n"               \
    "MemoryError\n    Metal has no room.\n"                                            \
    "MetalError\n    There is no Metal device."

PyDoc_STRVAR(empty_doc,
             "empty($module, shape, dtype='float32', *, device=None, storage=None)\n--\n\n"
             "A new Array whose items are not set to anything.\n\n"
             "Parameters\n----------\n" CREATION_PARAMETERS);

static PyObject *
core_empty(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "empty", 0, 2, 1, {"shape", "dtype", "device", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[4];
    creation what;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_creation(state, "empty", values[0], values[1], values[2], values[3], &what) < 0) {
        return NULL;
    }
    return allocate(state, "empty", &what);
}

PyDoc_STRVAR(zeros_doc,
             "zeros($module, shape, dtype='float32', *, device=None, storage=None)\n--\n\n"
             "A new Array of zeros.\n\n"
             "Parameters\n----------\n" CREATION_PARAMETERS);

static PyObject *
core_zeros(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "zeros", 0, 2, 1, {"shape", "dtype", "device", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[4];
    creation what;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_creation(state, "zeros", values[0], values[1], values[2], values[3], &what) < 0) {
        return NULL;
    }
    PyObject *array = allocate(state, "zeros", &what);
    if (array != NULL && set_zero(state, "zeros", array) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

PyDoc_STRVAR(full_doc,
             "full($module, shape, value, dtype='float32', *, device=None, storage=None)\n--\n\n"
             "A new Array with `value`, a number, in every item.\n\n"
             "Parameters\n----------\n"
             "value : bool, int, float or complex\n"
             "    TypeError or OverflowError where it does not fit the element type.\n"
             CREATION_PARAMETERS);

static PyObject *
core_full(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "full", 0, 3, 2, {"shape", "value", "dtype", "device", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[5];
    creation what;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_creation(state, "full", values[0], values[2], values[3], values[4], &what) < 0) {
        return NULL;
    }
    PyObject *array = allocate(state, "full", &what);
    if (array != NULL && array_fill("full", array_cast(array), values[1]) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

PyDoc_STRVAR(empty_like_doc,
             "empty_like($module, x, /, *, dtype=None, device=None, storage=None)\n--\n\n"
             "A new Array with the shape of `x`, an Array, whose items are not set to anything.\n\n"
             "Parameters\n----------\n"
             "x : Array\n"
             "dtype, device, storage : optional\n    Default: those of x.\n\n"
             "Returns\n-------\nArray\n    In C order.\n\n"
             "Raises\n------\nTypeError\n    x is not an Array.\nMemoryError\n    Metal has no room.");

static PyObject *
core_empty_like(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"empty_like", 1, 1, 1, {"x", "dtype", "device", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[4];
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    if (!Py_IS_TYPE(values[0], state->array_type)) {
        return PyErr_Format(PyExc_TypeError, "empty_like: x must be an Array, not %.100s.",
                            Py_TYPE(values[0])->tp_name);
    }
    ArrayObject *like = array_cast(values[0]);
    metal_storage *storage = array_storage(like);
    DLDataType dtype = like->dtype;
    const device_record *device = storage->device;
    bridge_storage mode = storage->mode;
    if (values[1] != NULL && values[1] != Py_None &&
        dtype_type_convert(state, "empty_like", values[1], &dtype) < 0) {
        return NULL;
    }
    if (values[2] != NULL && values[2] != Py_None &&
        (device = device_convert(state, "empty_like", values[2])) == NULL) {
        return NULL;
    }
    if (values[3] != NULL && values[3] != Py_None &&
        storage_mode_convert(state, "empty_like", values[3], device, &mode) < 0) {
        return NULL;
    }
    bool is_padded = like->is_padded && dtype_equal(dtype, like->dtype);
    return array_allocate_padded(state, "empty_like", device, mode, like->ndim, array_shape(like),
                                 dtype, 'C', is_padded);
}

/* ---- asarray: where the items come from ---- */

/* The items of a memoryview; `owner`, which can be the memoryview, keeps them. */
static PyObject *
array_of_view(md_state *state, PyObject *memory, PyObject *owner, const import_request *request)
{
    const Py_buffer *view = PyMemoryView_GET_BUFFER(memory);
    DLDataType dtype;
    strided_layout layout;
    layout_fault fault;
    int64_t strides[LAYOUT_MAX_NDIM];
    if (!dtype_from_buffer_format(view->format, view->itemsize, &dtype)) {
        return PyErr_Format(PyExc_ValueError,
                            "asarray: the buffer's format '%s' is structured, of non-native byte "
                            "order, or unknown; convert it first.",
                            view->format);
    }
    for (int axis = 0; axis < view->ndim; axis++) {
        if (view->strides[axis] % view->itemsize != 0) {
            return PyErr_Format(PyExc_ValueError,
                                "asarray: stride %zd of axis %d is not a multiple of the itemsize "
                                "(%zd bytes); copy it first.",
                                view->strides[axis], axis, view->itemsize);
        }
        strides[axis] = view->strides[axis] / view->itemsize;
    }
    if (!layout_set(&layout, view->ndim, (const int64_t *)view->shape, strides, view->itemsize, 0,
                    &fault)) {
        return errors_from_layout(state, "asarray", &fault);
    }
    host_items items = {view->buf, &layout, dtype, view->readonly, false};
    return host_memory_import(state, "asarray", &items, owner, request);
}

static PyObject *
array_of_buffer(md_state *state, PyObject *x, const import_request *request)
{
    PyObject *owner = PyMemoryView_FromObject(x);
    PyObject *array = owner == NULL ? NULL : array_of_view(state, owner, owner, request);
    Py_XDECREF(owner);
    return array;
}

static PyObject *
array_of_shared_memory(md_state *state, PyObject *x, const import_request *request)
{
    PyObject *view;
    PyObject *owner = shared_memory_owner("asarray", x, &view);
    PyObject *array = owner == NULL ? NULL : array_of_view(state, view, owner, request);
    Py_XDECREF(owner);
    return array;
}

/* NumPy's scalars: they have a dtype and show their memory, which is read-only and nobody's to share. */
static bool
is_numpy_scalar(PyObject *x)
{
    return PyObject_CheckBuffer(x) && PyObject_HasAttrString(x, "dtype");
}

/* Lists and Python's numbers carry no element type of their own: floats become float32, the type
 * of empty() and the widest that Metal computes with. */
static PyObject *
narrow_default(PyObject *ndarray)
{
    PyObject *dtype = PyObject_GetAttrString(ndarray, "dtype");
    PyObject *letter = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "char");
    PyObject *result = NULL;
    if (letter != NULL) {
        bool is_double = PyUnicode_CompareWithASCIIString(letter, "d") == 0;
        bool is_complex = PyUnicode_CompareWithASCIIString(letter, "D") == 0;
        const char *narrow = is_double ? "float32" : is_complex ? "complex64" : NULL;
        result = narrow == NULL ? Py_NewRef(ndarray)
                                : PyObject_CallMethod(ndarray, "astype", "s", narrow);
    }
    Py_XDECREF(letter);
    Py_XDECREF(dtype);
    return result;
}

/* NumPy makes an array of anything: of what is no number, objects, texts or dates. */
static int
check_numbers(PyObject *ndarray, PyObject *x)
{
    PyObject *dtype = PyObject_GetAttrString(ndarray, "dtype");
    PyObject *kind = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "kind");
    const char *letter = kind == NULL ? NULL : PyUnicode_AsUTF8(kind);
    bool is_number = letter != NULL && strchr("OSTUMm", letter[0]) == NULL;
    if (letter != NULL && !is_number) {
        PyErr_Format(PyExc_TypeError,
                     "asarray: %.100s (%R to NumPy) is not made of numbers that an element type holds; "
                     "give a number, nested lists of numbers, or an object with DLPack or the buffer protocol.",
                     Py_TYPE(x)->tp_name, dtype);
    }
    Py_XDECREF(kind);
    Py_XDECREF(dtype);
    return is_number ? 0 : -1;
}

static PyObject *
array_of_nested(md_state *state, PyObject *x, const import_request *request)
{
    if (request->copy == 0) {
        return errors_copy_required(state, "asarray: %.100s has no memory to share, so a copy is "
                                           "needed and copy=False forbids it.",
                                    Py_TYPE(x)->tp_name);
    }
    PyObject *numpy = array_numpy_module("asarray");
    PyObject *wide = numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", x);
    PyObject *items = NULL;
    if (wide != NULL && check_numbers(wide, x) == 0) {
        items = is_numpy_scalar(x) ? Py_NewRef(wide) : narrow_default(wide);
    }
    PyObject *array = NULL;
    if (items != NULL) {
        import_request always = {.device = request->device, .copy = 1};
        array = array_of_buffer(state, items, &always);
    }
    Py_XDECREF(items);
    Py_XDECREF(wide);
    Py_XDECREF(numpy);
    return array;
}

/* A NumPy array whose element type comes from ml_dtypes: as integers, and renamed.  Sub-byte items have a byte
 * each there, and keep it. */
static PyObject *
array_of_ml_dtypes(md_state *state, PyObject *ndarray, DLDataType dtype,
                   const import_request *request)
{
    static const char *const names[] = {NULL, "uint8", "uint16", NULL, "uint32"};
    PyObject *integers =
        PyObject_CallMethod(ndarray, "view", "s", names[dtype_itemsize(dtype)]);
    PyObject *plain = integers == NULL ? NULL : array_of_buffer(state, integers, request);
    PyObject *array = NULL;
    if (plain != NULL) {
        strided_layout layout;
        array_get_layout(array_cast(plain), &layout);
        PyObject *buffer = array_buffer(array_cast(plain));
        array = buffer == NULL ? NULL
                               : array_new_padded(state, buffer, array_cast(plain)->byte_offset, &layout,
                                                  dtype, array_cast(plain)->is_readonly, true);
    }
    Py_XDECREF(plain);
    Py_XDECREF(integers);
    return array;
}

/* 1, and the dtype of a NumPy array where ml_dtypes made it; 0 for all else.  -1 with ValueError: another byte
 * order, which NumPy would refuse without the way out. */
static int
is_ml_dtypes_array(md_state *state, PyObject *x, DLDataType *dtype)
{
    if (strcmp(Py_TYPE(x)->tp_name, "numpy.ndarray") != 0) {
        return 0;
    }
    PyObject *named = PyObject_GetAttrString(x, "dtype");
    bool is_known = named != NULL && dtype_type_convert(state, "asarray", named, dtype) == 0;
    Py_XDECREF(named);
    if (!is_known && PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    PyErr_Clear();
    return is_known && dtype_buffer_format(*dtype) == NULL;
}

static bool
has_array_interface(PyObject *x)
{
    return PyObject_HasAttrString(x, "__array_interface__") || PyObject_HasAttrString(x, "__array__");
}

PyObject *
array_make_of(md_state *state, PyObject *x, const import_request *request)
{
    DLDataType dtype;
    int is_theirs = is_ml_dtypes_array(state, x, &dtype);
    if (is_theirs != 0) {
        return is_theirs < 0 ? NULL : array_of_ml_dtypes(state, x, dtype, request);
    }
    bool is_scalar = PyFloat_Check(x) || PyLong_Check(x) || PyComplex_Check(x) || is_numpy_scalar(x);
    if (producer_speaks_dlpack(state, x) && !PyCapsule_CheckExact(x)) {
        return producer_import(state, x, request);
    }
    if (PyObject_CheckBuffer(x) && !is_numpy_scalar(x)) {
        return array_of_buffer(state, x, request);
    }
    if (!is_scalar && has_array_interface(x)) {
        PyObject *numpy = array_numpy_module("asarray");
        PyObject *items = numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", x);
        PyObject *array = items == NULL ? NULL : array_of_buffer(state, items, request);
        Py_XDECREF(items);
        Py_XDECREF(numpy);
        return array;
    }
    int is_shared = shared_memory_check(x);
    if (is_shared != 0) {
        return is_shared < 0 ? NULL : array_of_shared_memory(state, x, request);
    }
    return array_of_nested(state, x, request);
}

/* ---- asarray: what it shall be ---- */

/* `array` is consumed; the result is what was asked for. */
static PyObject *
finish(md_state *state, PyObject *array, PyObject *dtype_value, PyObject *storage_value, int copy)
{
    ArrayObject *self = array_cast(array);
    DLDataType dtype = self->dtype;
    bridge_storage mode = array_storage(self)->mode;
    PyObject *result = NULL;
    if (dtype_value != NULL && dtype_value != Py_None &&
        dtype_type_convert(state, "asarray", dtype_value, &dtype) < 0) {
        goto done;
    }
    if (storage_value != NULL && storage_value != Py_None &&
        storage_mode_convert(state, "asarray", storage_value, NULL, &mode) < 0) {
        goto done;
    }
    bool is_other_type = !dtype_equal(dtype, self->dtype);
    if (!is_other_type && mode == array_storage(self)->mode) {
        return array;
    }
    if (copy == 0) {
        (void)errors_copy_required(state,
                                   "asarray: another %s needs a copy and copy=False forbids it.",
                                   is_other_type ? "element type" : "storage mode");
        goto done;
    }
    result = is_other_type ? array_numpy_convert("asarray", self, dtype, mode)
                           : array_copied(self, 'C', mode);

done:
    Py_DECREF(array);
    return result;
}

PyDoc_STRVAR(asarray_doc,
             "asarray($module, x, /, *, dtype=None, device=None, copy=None, storage=None)\n--\n\n"
             "Anything as an Array: DLPack, the buffer protocol, multiprocessing's SharedMemory,\n"
             "__array_interface__, nested lists, numbers.\n\n"
             "Parameters\n----------\n"
             "x : object\n"
             "dtype : dtype or what names one, optional\n"
             "    Default: that of x; float32 and complex64 for Python's own floats and complex\n"
             "    numbers.  Only a different dtype converts.\n"
             "device : Device or str, optional\n"
             "    Default: where the data is, or the default device.\n"
             "copy : bool, optional\n"
             "    True: always.  False: never.  None: where the memory cannot be shared.\n"
             "storage : {'shared', 'managed', 'private'}, optional\n"
             "    Default: that of the memory; a different one copies.\n\n"
             "Returns\n-------\n"
             "Array\n    Shares the memory of x where it can, and keeps x alive then.\n\n"
             "Raises\n------\n"
             "CopyRequiredError\n    copy=False and a copy is needed.\n"
             "ValueError\n    Non-native byte order or structured items.\n"
             "ImportError\n    Lists and conversions are NumPy's work, and it is not installed.");

static PyObject *
core_asarray(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "asarray", 1, 1, 1, {"x", "dtype", "device", "copy", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[5];
    import_request request = {0};
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        args_tristate("asarray", "copy", values[3], &request.copy) < 0) {
        return NULL;
    }
    if (values[2] != NULL && values[2] != Py_None &&
        (request.device = device_convert(state, "asarray", values[2])) == NULL) {
        return NULL;
    }
    PyObject *array = array_make_of(state, values[0], &request);
    return array == NULL ? NULL
                         : finish(state, array, values[1], values[4], request.copy);
}

PyMethodDef array_make_functions[] = {
    {"empty", MD_FASTCALL(core_empty), empty_doc},
    {"zeros", MD_FASTCALL(core_zeros), zeros_doc},
    {"full", MD_FASTCALL(core_full), full_doc},
    {"empty_like", MD_FASTCALL(core_empty_like), empty_like_doc},
    {"asarray", MD_FASTCALL(core_asarray), asarray_doc},
    {NULL, NULL, 0, NULL},
};
