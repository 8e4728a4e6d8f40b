/* array_make.c: empty, zeros, full and empty_like.
 *
 * Calls:   array.h to allocate.
 * Threads: the GIL is held; released while allocating and setting items.
 */
#include "array/array_make.h"

#include "array/array.h"
#include "metal/storage_bytes.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/dtype_type.h"

/* ---- empty, zeros, full ---- */

/* The arguments of every allocating function. */
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
    return errors_check_status(state, function, status, &error, storage->nbytes);
}

#define CREATION_PARAMETERS \
    "shape : int or tuple of int\n" \
    "dtype : dtype or what names one\n    Default: float32.\n" \
    "device : Device or str, optional\n    Default: the system's default device.\n" \
    "storage : {'shared', 'managed', 'private'}, optional\n" \
    "    Default: get_storage_mode().\n\n" \
    "Returns\n-------\nArray\n    In C order, with memory of its own.\n\n" \
    "Raises\n------\n" \
    "ValueError\n    An extent is negative, or the product overflows.\n" \
    "MemoryError\n    Metal has no room.\n" \
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
        convert_creation(state, "empty", values[0], values[1], values[2], values[3], &what) <
            0) {
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
        convert_creation(state, "zeros", values[0], values[1], values[2], values[3], &what) <
            0) {
        return NULL;
    }
    PyObject *array = allocate(state, "zeros", &what);
    if (array != NULL && set_zero(state, "zeros", array) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

PyDoc_STRVAR(
    full_doc,
    "full($module, shape, value, dtype='float32', *, device=None, storage=None)\n--\n\n"
    "A new Array with `value`, a number, in every item.\n\n"
    "Parameters\n----------\n"
    "value : bool, int, float or complex\n"
    "    TypeError or OverflowError where it does not fit the element "
    "type.\n" CREATION_PARAMETERS);

static PyObject *
core_full(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "full", 0, 3, 2, {"shape", "value", "dtype", "device", "storage", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[5];
    creation what;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        convert_creation(state, "full", values[0], values[2], values[3], values[4], &what) <
            0) {
        return NULL;
    }
    PyObject *array = allocate(state, "full", &what);
    if (array != NULL && array_fill("full", array_cast(array), values[1]) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

PyDoc_STRVAR(
    empty_like_doc,
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
    static const args_spec spec = {
        "empty_like", 1, 1, 1, {"x", "dtype", "device", "storage", NULL}};
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
    return array_allocate_padded(state, "empty_like", device, mode, like->ndim,
                                 array_shape(like), dtype, 'C', is_padded);
}

PyMethodDef array_make_functions[] = {
    {"empty", MD_FASTCALL(core_empty), empty_doc},
    {"zeros", MD_FASTCALL(core_zeros), zeros_doc},
    {"full", MD_FASTCALL(core_full), full_doc},
    {"empty_like", MD_FASTCALL(core_empty_like), empty_like_doc},
    {NULL, NULL, 0, NULL},
};
