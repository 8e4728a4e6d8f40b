/* asarray.c: see asarray.h.
 *
 * Calls:   dlpack_import.h and host_memory.h for foreign memory, asarray_numbers.c for
 *          lists, NumPy for lists with arrays in them and for conversions.
 * Threads: the GIL is held; released while allocating, waiting and copying.
 */
#include "exchange/asarray.h"

#include "array/array.h"
#include "array/array_numpy.h"
#include "array/view_items.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "exchange/host_memory.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/element.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/dtype_type.h"

/* ---- where the items come from ---- */

/* The items behind tables of pointers, which no layout describes: always a copy. */
static PyObject *
array_of_pointers(md_state *state, const Py_buffer *view, const import_request *request)
{
    int64_t shape[LAYOUT_MAX_NDIM];
    array_creation what = {.mode = BRIDGE_SHARED, .order = 'C', .shape = shape};
    if (request->copy == 0) {
        return errors_copy_required(
            state, "asarray: the items are reached through tables of pointers (suboffsets), so "
                   "a copy is needed and copy=False forbids it; pass copy=None.");
    }
    for (; what.ndim < view->ndim; what.ndim++) {
        shape[what.ndim] = view->shape[what.ndim];
    }
    what.device = import_request_device(state, "asarray", request);
    if (what.device == NULL || view_items_dtype("asarray", view, &what.dtype) < 0) {
        return NULL;
    }
    PyObject *array = array_allocate(state, "asarray", &what);
    if (array != NULL && view->len > 0 &&
        PyBuffer_ToContiguous(array_storage(array_cast(array))->address, view, view->len, 'C') <
            0) {
        Py_CLEAR(array);
    }
    return array;
}

/* The items of a view that `owner` keeps. */
static PyObject *
array_of_view(md_state *state, const Py_buffer *view, PyObject *owner,
              const import_request *request)
{
    strided_layout layout;
    host_items items = {.address = view->buf, .layout = &layout};
    if (view->suboffsets != NULL) {
        return array_of_pointers(state, view, request);
    }
    if (view_items_read(state, "asarray", view, &items.dtype, &layout) < 0) {
        return NULL;
    }
    const device_record *device = import_request_device(state, "asarray", request);
    return device == NULL ? NULL
                          : host_memory_import_view(state, "asarray", view, owner, &items,
                                                    device, request->copy);
}

static PyObject *
array_of_buffer(md_state *state, PyObject *x, const import_request *request)
{
    const Py_buffer *view;
    PyObject *owner = host_memory_keep("asarray", x, &view);
    PyObject *array = owner == NULL ? NULL : array_of_view(state, view, owner, request);
    Py_XDECREF(owner);
    return array;
}

/* NumPy before 2.1 has no word for read-only memory in DLPack; its buffer protocol has one. */
static PyObject *
array_of_producer(md_state *state, PyObject *x, const import_request *request)
{
    PyObject *array = dlpack_import(state, x, request);
    if (array != NULL || !array_numpy_is_array(x) ||
        !PyErr_ExceptionMatches(PyExc_BufferError) ||
        PyErr_ExceptionMatches(state->copy_required_error)) {
        return array;
    }
    PyObject *refusal = errors_take();
    array = array_of_buffer(state, x, request);
    if (array == NULL) {
        errors_restore(refusal);
        return NULL;
    }
    Py_DECREF(refusal);
    return array;
}

/* The bytes of a Buffer, which has its MTLBuffer already. */
static PyObject *
array_of_our_buffer(md_state *Py_UNUSED(state), PyObject *x, const import_request *request)
{
    const metal_storage *storage = buffer_open_storage("asarray", buffer_cast(x));
    PyObject *array =
        storage == NULL
            ? NULL
            : PyObject_CallMethod(x, "array", "ns", (Py_ssize_t)storage_usable_nbytes(storage),
                                  "uint8");
    PyObject *result = array == NULL ? NULL : dlpack_import_array(array, request);
    Py_XDECREF(array);
    return result;
}

/* 1, and the dtype of a NumPy array where ml_dtypes made it; 0 for everything else.  -1 with
 * ValueError: another byte order, which NumPy would refuse without saying what to do; or with
 * what the array's own code raises. */
static int
find_ml_dtype(md_state *state, PyObject *x, DLDataType *dtype)
{
    if (!array_numpy_is_array(x)) {
        return 0;
    }
    PyObject *named = PyObject_GetAttrString(x, "dtype");
    /* the usual case, without looking names up */
    if (named != NULL && array_numpy_builtin(named) == NUMPY_OWN) {
        Py_DECREF(named);
        return 0;
    }
    bool is_known = named != NULL && dtype_type_convert(state, "asarray", named, dtype) == 0;
    Py_XDECREF(named);
    if (!is_known && !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyErr_Clear();
    return is_known && dtype_buffer_format(*dtype) == NULL;
}

/* Import a NumPy array of an ml_dtypes type as integers, and rename them.  Its sub-byte
 * items have a byte each, and keep it. */
static PyObject *
array_of_ml_dtypes(md_state *state, PyObject *ndarray, DLDataType dtype,
                   const import_request *request)
{
    PyObject *integers = array_numpy_as_integers(ndarray, dtype);
    PyObject *plain = integers == NULL ? NULL : array_of_buffer(state, integers, request);
    PyObject *array = NULL;
    if (plain != NULL) {
        strided_layout layout;
        array_get_layout(array_cast(plain), &layout);
        PyObject *buffer = array_buffer(array_cast(plain));
        array = buffer == NULL
                    ? NULL
                    : array_new(state, buffer, array_cast(plain)->byte_offset, &layout, dtype,
                                array_cast(plain)->is_readonly, true);
    }
    Py_XDECREF(plain);
    Py_XDECREF(integers);
    return array;
}

static PyObject *
array_of_ndarray(md_state *state, PyObject *ndarray, const import_request *request)
{
    DLDataType dtype;
    int is_ml_dtypes = find_ml_dtype(state, ndarray, &dtype);
    if (is_ml_dtypes < 0) {
        return NULL;
    }
    return is_ml_dtypes ? array_of_ml_dtypes(state, ndarray, dtype, request)
                        : array_of_buffer(state, ndarray, request);
}

/* Is it a scalar of NumPy's?  These have a dtype and the buffer protocol, but no memory to
 * share.  1, 0, or -1 with an exception. */
static int
is_numpy_scalar(md_state *state, PyObject *x)
{
    int is_there = PyObject_CheckBuffer(x) ? attribute_exists(x, state->str_dtype) : 0;
    return is_there < 0 ? errors_pass_over() : is_there;
}

/* -1 with TypeError: NumPy made an array of objects, texts or dates. */
static int
check_numbers(PyObject *ndarray, PyObject *x)
{
    char kind = asarray_numbers_kind(ndarray);
    if (kind == '\0' || strchr("OSTUMm", kind) == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *dtype = PyObject_GetAttrString(ndarray, "dtype");
    if (dtype != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "asarray: %.100s cannot be converted: NumPy gives it %R, which is not "
                     "numeric; give a number, nested lists of numbers, or an object with "
                     "DLPack or the buffer protocol.",
                     Py_TYPE(x)->tp_name, dtype);
        Py_DECREF(dtype);
    }
    return -1;
}

/* Floats as float32, which is the default of empty() and the widest that Metal computes with.
 * Steals `array`. */
static PyObject *
narrowed(PyObject *array)
{
    DLDataType dtype = array_cast(array)->dtype;
    bool is_wide = (dtype.code == kDLFloat && dtype.bits == 64) ||
                   (dtype.code == kDLComplex && dtype.bits == 128);
    if (!is_wide) {
        return array;
    }
    dtype.bits /= 2;
    PyObject *narrow = array_numpy_convert("asarray", array_cast(array), dtype, BRIDGE_SHARED);
    Py_DECREF(array);
    return narrow;
}

/* Makes the element type that NumPy chooses: for its scalars, and lists with arrays among them, which have
 * no element type of their own. */
static PyObject *
array_of_numbers(md_state *state, PyObject *x, const import_request *request)
{
    import_request always = {.device = request->device, .copy = 1};
    int is_scalar = is_numpy_scalar(state, x);
    PyObject *items = is_scalar < 0 ? NULL : array_numpy_asarray("asarray", x);
    bool is_good = items != NULL && check_numbers(items, x) == 0;
    PyObject *array = is_good ? array_of_ndarray(state, items, &always) : NULL;
    Py_XDECREF(items);
    return array == NULL || is_scalar == 1 ? array : narrowed(array);
}

static PyObject *
array_of_nested(md_state *state, PyObject *x, const import_request *request)
{
    if (request->copy == 0) {
        return errors_copy_required(state,
                                    "asarray: %.100s has no memory to share, so a copy is "
                                    "needed and copy=False forbids it; pass copy=None.",
                                    Py_TYPE(x)->tp_name);
    }
    PyObject *array;
    if (asarray_numbers(state, x, request, &array) != 0) {
        return array;
    }
    bool has_dtype = request->dtype != NULL && request->dtype->lanes == 1;
    return has_dtype ? asarray_numbers_by_numpy(state, x, request)
                     : array_of_numbers(state, x, request);
}

/* What NumPy reads by __array_interface__ or __array__. */
static PyObject *
array_of_interface(md_state *state, PyObject *x, const import_request *request)
{
    PyObject *items = array_numpy_asarray("asarray", x);
    PyObject *array = items == NULL ? NULL : array_of_ndarray(state, items, request);
    Py_XDECREF(items);
    return array;
}

/* ---- who takes what ---- */

static int
is_ml_dtypes_array(md_state *state, PyObject *x)
{
    DLDataType dtype;
    return find_ml_dtype(state, x, &dtype);
}

static int
is_our_buffer(md_state *state, PyObject *x)
{
    return Py_IS_TYPE(x, state->buffer_type);
}

static int
shows_memory(md_state *state, PyObject *x)
{
    if (!PyObject_CheckBuffer(x)) {
        return 0;
    }
    int is_scalar = is_numpy_scalar(state, x);
    return is_scalar < 0 ? -1 : !is_scalar;
}

static int
has_array_interface(md_state *state, PyObject *x)
{
    if (element_is_number(x)) {
        return 0;
    }
    int is_scalar = is_numpy_scalar(state, x);
    if (is_scalar != 0) {
        return is_scalar < 0 ? -1 : 0; /* it has it, and is taken as Python's numbers are */
    }
    int is_there = attribute_exists(x, state->str___array_interface__);
    return is_there != 0 ? is_there : attribute_exists(x, state->str___array__);
}

typedef struct taker {
    int (*takes)(md_state *state, PyObject *x); /* 1, 0, or -1 with an exception; NULL: 1 */
    PyObject *(*take)(md_state *state, PyObject *x, const import_request *request);
} taker;

/* In this order; the last takes what the others leave. */
static const taker takers[] = {
    {is_ml_dtypes_array, array_of_ndarray},
    {foreign_speaks, array_of_producer}, /* a bare capsule is for from_dlpack alone */
    {is_our_buffer, array_of_our_buffer},
    {shows_memory, array_of_buffer},
    {has_array_interface, array_of_interface},
    {shared_memory_check, array_of_buffer},
    {NULL, array_of_nested},
};

PyObject *
asarray_import(md_state *state, PyObject *x, const import_request *request)
{
    for (const taker *taker = takers;; taker++) {
        int is_taken = taker->takes == NULL ? 1 : taker->takes(state, x);
        if (is_taken != 0) {
            return is_taken < 0 ? NULL : taker->take(state, x, request);
        }
    }
}

/* ---- what it shall be ---- */

/* Convert to the dtype and storage mode that were asked for.  Steals `array`. */
static PyObject *
finish(md_state *state, PyObject *array, const import_request *request, PyObject *storage_value)
{
    ArrayObject *self = array_cast(array);
    DLDataType dtype = request->dtype == NULL ? self->dtype : *request->dtype;
    array_creation what = array_like(self);
    PyObject *result = NULL;
    if (args_is_given(storage_value) &&
        storage_mode_convert(state, "asarray", storage_value, &what.mode) < 0) {
        goto done;
    }
    bool is_other_type = !dtype_equal(dtype, self->dtype);
    if (!is_other_type && what.mode == array_storage(self)->mode) {
        return array;
    }
    if (request->copy == 0) {
        (void)errors_copy_required(
            state,
            "asarray: a different %s needs a copy, and copy=False forbids it; pass copy=None.",
            is_other_type ? "element type" : "storage mode");
        goto done;
    }
    result = is_other_type ? array_numpy_convert("asarray", self, dtype, what.mode)
                           : array_copied("asarray", self, &what, NULL);

done:
    Py_DECREF(array);
    return result;
}

PyDoc_STRVAR(
    asarray_doc,
    "asarray($module, x, /, *, dtype=None, device=None, copy=None, storage=None)\n--\n\n"
    "Make an Array of anything: DLPack, the buffer protocol, multiprocessing's\n"
    "SharedMemory, __array_interface__, nested lists, numbers.\n\n"
    "Parameters\n----------\n"
    "x : object\n"
    "dtype : dtype or a name of one, optional\n"
    "    Default: that of x.  Python's numbers become bool, int64, float32 or complex64,\n"
    "    whichever is the widest.  Only a different dtype converts: memory as astype()\n"
    "    does; numbers and lists directly, each rounded once.\n"
    "device : Device or str, optional\n"
    "    Default: where the data is, or the default device.\n"
    "copy : bool, optional\n"
    "    True: always copy.  False: never.  None: only if the memory cannot be shared.\n"
    "storage : {'shared', 'managed', 'private'}, optional\n"
    "    Default: that of the memory; a different one copies.\n\n"
    "Returns\n-------\n"
    "Array\n    Shares the memory of x where it can; then it keeps x alive.  Memory behind\n"
    "    tables of pointers (suboffsets), as PIL has it, is copied.\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n    copy=False and a copy is needed.\n"
    "ValueError\n    Non-native byte order or structured items; lists of different lengths.\n"
    "TypeError\n"
    "    x is not made of numbers; a complex number is given for a real dtype; or, without\n"
    "    a dtype, an int is beyond int64.\n"
    "OverflowError\n    A number of a list does not fit the dtype, as with full().\n"
    "ImportError\n    NumPy is not installed: it converts memory, and reads lists with arrays "
    "in them.");

ARGS_FUNCTION(core_asarray, module, "asarray", 1, 1, 1, "x", "dtype", "device", "copy",
              "storage")
{
    md_state *state = state_of_module(module);
    import_request request = {0};
    DLDataType dtype;
    if (args_tristate(function, "copy", values[3], &request.copy) < 0) {
        return NULL;
    }
    if (args_is_given(values[1])) {
        if (dtype_type_convert(state, function, values[1], &dtype) < 0) {
            return NULL;
        }
        request.dtype = &dtype;
    }
    if (args_is_given(values[2]) &&
        (request.device = device_convert(state, function, values[2])) == NULL) {
        return NULL;
    }
    PyObject *array = asarray_import(state, values[0], &request);
    return array == NULL ? NULL : finish(state, array, &request, values[4]);
}

PyMethodDef asarray_functions[] = {
    {"asarray", MD_FASTCALL(core_asarray), asarray_doc},
    {NULL, NULL, 0, NULL},
};
