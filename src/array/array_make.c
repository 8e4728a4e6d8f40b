/* array_make.c: empty, zeros, ones and full, and the same like another array.
 *
 * Calls:   array.h to allocate.
 * Threads: the GIL is held; released while allocating and setting items.
 */
#include "array/array_methods.h"
#include "metal/staging.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/element.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/dtype_type.h"

/* What is written into a new Array. */
typedef enum contents { ANYTHING, ZERO, ONE, VALUE } contents;

/* One of the functions. */
typedef struct maker {
    args_spec spec;
    contents contents;
} maker;

/* What a call asks for: `shape` is `what.shape`, `value` is borrowed. */
typedef struct creation {
    array_creation what;
    int64_t shape[LAYOUT_MAX_NDIM];
    PyObject *value;
} creation;

/* ---- making ---- */

static int
set_zero(md_state *state, const char *function, PyObject *array)
{
    metal_storage *storage = array_storage(array_cast(array));
    bridge_error error;
    bridge_error_clear(&error);
    bridge_status status =
        WITHOUT_GIL(staging_set_bytes(storage, 0, storage->nbytes, 0, &error));
    return errors_check_status(state, function, status, &error, storage->nbytes);
}

static int
set_one(const char *function, PyObject *array)
{
    PyObject *one = PyLong_FromLong(1);
    int result = one == NULL ? -1 : array_fill(function, array_cast(array), one, NULL);
    Py_XDECREF(one);
    return result;
}

static PyObject *
make(md_state *state, const maker *maker, const creation *given)
{
    const char *function = maker->spec.function;
    PyObject *array = array_allocate(state, function, &given->what);
    if (array == NULL) {
        return NULL;
    }
    int result = 0;
    switch (maker->contents) {
    case ANYTHING: array_tell_unwritten(array_cast(array), false); break;
    case ZERO: result = set_zero(state, function, array); break;
    case ONE: result = set_one(function, array); break;
    case VALUE: result = array_fill(function, array_cast(array), given->value, NULL); break;
    }
    if (result < 0) {
        Py_CLEAR(array);
    }
    return array;
}

/* ---- empty, zeros, ones, full ---- */

/* zeros(2, 3): the second extent is in the dtype's place. */
static int
check_one_shape(const char *function, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t nextents = 0;
    while (nextents < nargs && PyLong_CheckExact(args[nextents])) {
        nextents++;
    }
    if (nextents < 2) {
        return 0;
    }
    PyObject *shape = PyTuple_New(nextents);
    for (Py_ssize_t i = 0; shape != NULL && i < nextents; i++) {
        PyTuple_SET_ITEM(shape, i, Py_NewRef(args[i]));
    }
    if (shape != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %R is not an element type; if it is an extent, pass the shape as one "
                     "argument: %s(%R).",
                     function, args[1], function, shape);
        Py_DECREF(shape);
    }
    return -1;
}

/* The device and the storage mode; NULL and None are the defaults. */
static int
convert_place(md_state *state, const char *function, PyObject *device, PyObject *storage,
              array_creation *what)
{
    what->device = device_convert(state, function, device);
    return what->device == NULL ? -1
                                : storage_mode_convert(state, function, storage, &what->mode);
}

/* NULL and None: the dtype that `value` has, as a NumPy scalar and a tensor have; else
 * that of Python's numbers.  An int beyond int64 is refused when the items are written. */
static int
convert_dtype(md_state *state, const char *function, PyObject *value, PyObject *dtype,
              DLDataType *out)
{
    if (args_is_given(dtype)) {
        return dtype_type_convert(state, function, dtype, out);
    }
    *out = (DLDataType){kDLFloat, 32, 1};
    if (value == NULL) {
        return 0;
    }
    PyObject *own = NULL;
    int result = attribute_find(value, state->str_dtype, &own);
    if (result == 1) {
        result = dtype_type_convert(state, function, own, out);
        Py_DECREF(own);
    }
    else if (result == 0) {
        *out = element_kind_dtype(PyIndex_Check(value) && !PyBool_Check(value)
                                      ? ELEMENT_INT
                                      : element_kind_of(value));
    }
    return result;
}

static PyObject *
make_of_shape(PyObject *module, const maker *maker, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    const char *function = maker->spec.function;
    bool has_value = maker->contents == VALUE;
    md_state *state = state_of_module(module);
    PyObject *values[5], **kind = values + 1 + has_value; /* dtype, device, storage */
    creation given;
    given.what = (array_creation){.shape = given.shape, .order = 'C'};
    if ((!has_value && check_one_shape(function, args, nargs) < 0) ||
        args_parse(&maker->spec, args, nargs, kwnames, values) < 0 ||
        args_int64s(function, "shape", values[0], given.shape, LAYOUT_MAX_NDIM,
                    &given.what.ndim) < 0 ||
        convert_dtype(state, function, has_value ? values[1] : NULL, kind[0],
                      &given.what.dtype) < 0 ||
        convert_place(state, function, kind[1], kind[2], &given.what) < 0) {
        return NULL;
    }
    given.value = values[1];
    return make(state, maker, &given);
}

/* ---- like another array ---- */

/* The shape and dtype of an array of any library.  0, or -1 with an exception. */
static int
read_foreign(md_state *state, const char *function, PyObject *x, creation *out)
{
    PyObject *shape = NULL, *dtype = NULL;
    out->what = (array_creation){.shape = out->shape, .order = 'C'};
    int is_there = attribute_find(x, state->str_shape, &shape);
    if (is_there == 1) {
        is_there = attribute_find(x, state->str_dtype, &dtype);
    }
    if (is_there == 0) {
        PyErr_Format(PyExc_TypeError,
                     "%s: x must be an array, with shape and dtype, not %.100s.", function,
                     Py_TYPE(x)->tp_name);
    }
    int result = is_there < 1 ? -1
                              : args_int64s(function, "x.shape", shape, out->shape,
                                            LAYOUT_MAX_NDIM, &out->what.ndim);
    if (result == 0) {
        result = dtype_type_convert(state, function, dtype, &out->what.dtype);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return result < 0 ? -1 : convert_place(state, function, NULL, NULL, &out->what);
}

/* What differs from the model.  `values`: dtype, shape, device, storage. */
static int
convert_changes(md_state *state, const char *function, PyObject *const *values, creation *out)
{
    array_creation *what = &out->what;
    DLDataType dtype = what->dtype;
    if (args_is_given(values[0]) &&
        dtype_type_convert(state, function, values[0], &dtype) < 0) {
        return -1;
    }
    what->is_padded &= dtype_equal(what->dtype, dtype);
    what->dtype = dtype;
    if (args_is_given(values[1])) {
        what->shape = out->shape;
        if (args_int64s(function, "shape", values[1], out->shape, LAYOUT_MAX_NDIM,
                        &what->ndim) < 0) {
            return -1;
        }
    }
    if (args_is_given(values[2]) &&
        (what->device = device_convert(state, function, values[2])) == NULL) {
        return -1;
    }
    return args_is_given(values[3])
               ? storage_mode_convert(state, function, values[3], &what->mode)
               : 0;
}

static PyObject *
make_like(PyObject *module, const maker *maker, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    const char *function = maker->spec.function;
    bool has_value = maker->contents == VALUE;
    md_state *state = state_of_module(module);
    PyObject *values[6];
    creation given;
    if (args_parse(&maker->spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    bool is_ours = Py_IS_TYPE(values[0], state->array_type);
    if (is_ours) {
        given.what = array_like(array_cast(values[0]));
    }
    if ((!is_ours && read_foreign(state, function, values[0], &given) < 0) ||
        convert_changes(state, function, values + 1 + has_value, &given) < 0) {
        return NULL;
    }
    given.value = values[1];
    return make(state, maker, &given);
}

/* ---- the functions ---- */

#define OF_SHAPE "shape, dtype='float32', *, device=None, storage=None)\n--\n\n"
#define LIKE "dtype=None, shape=None, device=None, storage=None)\n--\n\n"
#define PLACE_PARAMETERS \
    "device : Device or str, optional\n" \
    "    'metal:0'; 'mps:0', as torch calls it, is the same, and so is its torch.device.\n" \
    "    Default: "
#define RESULT_AND_ERRORS \
    "Returns\n-------\nArray\n    In C order, with memory of its own.\n\n" \
    "Raises\n------\n" \
    "ValueError\n    An extent is negative, or the product overflows.\n" \
    "MemoryError\n    Metal has no memory left.\n" \
    "MetalError\n    There is no Metal device."
#define VALUE_PARAMETER \
    "value : bool, int, float or complex\n" \
    "    TypeError or OverflowError where it does not fit the element type.\n"
#define SHAPE_PARAMETERS(default_dtype) \
    "dtype : dtype or a name of one\n    Default: " default_dtype ".\n" PLACE_PARAMETERS \
    "the system's default device.\n" \
    "storage : {'shared', 'managed', 'private'}, optional\n" \
    "    Default: get_storage_mode().\n\n" RESULT_AND_ERRORS
#define MODEL_PARAMETER \
    "Parameters\n----------\n" \
    "x : Array, or an array of any library\n" \
    "    Only shape and dtype of another library's array are read, not its items.\n"
#define LIKE_PARAMETERS \
    "dtype : dtype or a name of one, optional\n    Default: that of x.\n" \
    "shape : int or tuple of int, optional\n    Default: that of x.\n" PLACE_PARAMETERS \
    "that of x, if it is an Array.\n" \
    "storage : {'shared', 'managed', 'private'}, optional\n" \
    "    Default: that of x, if it is an Array; else " \
    "get_storage_mode().\n\n" RESULT_AND_ERRORS "\nTypeError\n    x has no shape and dtype."
#define SHAPE_PARAMETER "Parameters\n----------\nshape : int or tuple of int\n"

#define DEFINE_MAKER(name, how, contents, ...) \
    static PyObject *core_##name(PyObject *module, PyObject *const *args, Py_ssize_t nargs, \
                                 PyObject *kwnames) \
    { \
        static const maker maker = {{#name, __VA_ARGS__}, contents}; \
        return how(module, &maker, args, nargs, kwnames); \
    }

PyDoc_STRVAR(empty_doc, "empty($module, " OF_SHAPE
                        "A new Array whose items are not initialised.\n\n" SHAPE_PARAMETER
                            SHAPE_PARAMETERS("float32"));
DEFINE_MAKER(empty, make_of_shape, ANYTHING, 0, 2, 1,
             {"shape", "dtype", "device", "storage", NULL})

PyDoc_STRVAR(zeros_doc,
             "zeros($module, " OF_SHAPE
             "A new Array of zeros.\n\n" SHAPE_PARAMETER SHAPE_PARAMETERS("float32"));
DEFINE_MAKER(zeros, make_of_shape, ZERO, 0, 2, 1, {"shape", "dtype", "device", "storage", NULL})

PyDoc_STRVAR(ones_doc,
             "ones($module, " OF_SHAPE
             "A new Array of ones; of several lanes, in every lane.\n\n" SHAPE_PARAMETER
                 SHAPE_PARAMETERS(
                     "float32") "\nOverflowError\n    The dtype is int1, which has 0 and -1.");
DEFINE_MAKER(ones, make_of_shape, ONE, 0, 2, 1, {"shape", "dtype", "device", "storage", NULL})

PyDoc_STRVAR(
    full_doc,
    "full($module, shape, value, dtype=None, *, device=None, storage=None)\n--\n\n"
    "A new Array with `value`, a number, in every item.\n\n" SHAPE_PARAMETER VALUE_PARAMETER
        SHAPE_PARAMETERS("that of value, if it has one; else bool, int64, float32 or\n"
                         "    complex64, by the kind of number"));
DEFINE_MAKER(full, make_of_shape, VALUE, 0, 3, 2,
             {"shape", "value", "dtype", "device", "storage", NULL})

PyDoc_STRVAR(empty_like_doc, "empty_like($module, x, /, *, " LIKE
                             "A new Array with the shape and dtype of x, whose items are not "
                             "initialised.\n\n" MODEL_PARAMETER LIKE_PARAMETERS);
DEFINE_MAKER(empty_like, make_like, ANYTHING, 1, 1, 1,
             {"x", "dtype", "shape", "device", "storage", NULL})

PyDoc_STRVAR(
    zeros_like_doc,
    "zeros_like($module, x, /, *, " LIKE
    "A new Array of zeros with the shape and dtype of x.\n\n" MODEL_PARAMETER LIKE_PARAMETERS);
DEFINE_MAKER(zeros_like, make_like, ZERO, 1, 1, 1,
             {"x", "dtype", "shape", "device", "storage", NULL})

PyDoc_STRVAR(
    ones_like_doc,
    "ones_like($module, x, /, *, " LIKE
    "A new Array of ones with the shape and dtype of x.\n\n" MODEL_PARAMETER LIKE_PARAMETERS);
DEFINE_MAKER(ones_like, make_like, ONE, 1, 1, 1,
             {"x", "dtype", "shape", "device", "storage", NULL})

PyDoc_STRVAR(full_like_doc,
             "full_like($module, x, /, value, *, " LIKE
             "A new Array with the shape and dtype of x, and `value`, a number, in every "
             "item.\n\n" MODEL_PARAMETER VALUE_PARAMETER LIKE_PARAMETERS);
DEFINE_MAKER(full_like, make_like, VALUE, 1, 2, 2,
             {"x", "value", "dtype", "shape", "device", "storage", NULL})

PyMethodDef array_make_functions[] = {
    {"empty", MD_FASTCALL(core_empty), empty_doc},
    {"zeros", MD_FASTCALL(core_zeros), zeros_doc},
    {"ones", MD_FASTCALL(core_ones), ones_doc},
    {"full", MD_FASTCALL(core_full), full_doc},
    {"empty_like", MD_FASTCALL(core_empty_like), empty_like_doc},
    {"zeros_like", MD_FASTCALL(core_zeros_like), zeros_like_doc},
    {"ones_like", MD_FASTCALL(core_ones_like), ones_like_doc},
    {"full_like", MD_FASTCALL(core_full_like), full_like_doc},
    {NULL, NULL, 0, NULL},
};
