/* exchange_table.c: DLPack's C exchange API of the Array type: our own table.
 *
 * Owns:    the table behind Array.__dlpack_c_exchange_api__, static for the process.
 * Threads: the GIL is held; the allocator takes it.
 * Source:  dlpack.h 1.3 DLPackExchangeAPI.
 */
#include "exchange/dlpack_export.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "python/errors.h"
#include "streams/device.h"

/* ---- its functions ---- */

/* SPEC exchange-owned */
static int
tensor_from_array(void *op, DLManagedTensorVersioned **out)
{
    /* SPEC dlpack.h: the caller names no stream, and Metal has none to ask for: wait as
     * stream=None does. */
    export_request request = {.is_versioned = true, .device = kDLMetal, .copy = -1};
    *out = dlpack_export(array_cast(op), &request);
    if (*out == NULL) {
        refusal_note();
    }
    return *out == NULL ? -1 : 0;
}

/* Borrowed: valid until control returns to the caller of the caller.  Allocates nothing. */
static int
borrowed_from_array(void *op, DLTensor *out)
{
    if (dlpack_export_borrowed(array_cast(op), out) < 0) {
        refusal_note();
        return -1;
    }
    return 0;
}

/* SPEC exchange-steals */
static int
tensor_to_array(DLManagedTensorVersioned *tensor, void **out)
{
    import_request request = {.copy = -1};
    *out = dlpack_import_managed(tensor, "a caller of the exchange API", &request);
    return *out == NULL ? -1 : 0;
}

/* Report the exception through the caller's function, which may know nothing of Python.
 * tvm-ffi passes NULL for the function: then last_refusal() keeps the sentence. */
/* SPEC exchange-allocator */
static int
report_error(void *context, void (*set_error)(void *, const char *, const char *))
{
    if (set_error == NULL) {
        refusal_note();
        PyErr_Clear();
        return -1;
    }
    PyObject *exception = errors_take();
    PyObject *text = exception == NULL ? NULL : PyObject_Str(exception);
    const char *message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    const char *kind = exception == NULL ? "RuntimeError" : Py_TYPE(exception)->tp_name;
    PyErr_Clear(); /* ours; the caller's function may raise, and that stays */
    set_error(context, kind, message == NULL ? "The tensor could not be allocated." : message);
    Py_XDECREF(text);
    Py_XDECREF(exception);
    return -1;
}

/* A new array of the prototype's shape and element type, as a tensor. */
/* SPEC exchange-allocator */
static PyObject *
allocate_like(const DLTensor *prototype)
{
    md_state *state = state_of_interpreter();
    if (state == NULL) {
        return NULL;
    }
    const device_record *device = device_convert(state, "Array", NULL);
    if (device == NULL) {
        return NULL;
    }
    if (prototype->device.device_type != kDLMetal || prototype->device.device_id != 0) {
        return PyErr_Format(
            PyExc_BufferError,
            "Array: the allocator makes tensors on Metal (8, 0), not on (%d, %d).",
            (int)prototype->device.device_type, (int)prototype->device.device_id);
    }
    if (!dtype_is_known(prototype->dtype)) {
        return PyErr_Format(PyExc_BufferError,
                            "Array: the prototype's element type (code %d, bits %d, lanes %d) "
                            "is not one of DLPack 1.3.",
                            (int)prototype->dtype.code, (int)prototype->dtype.bits,
                            (int)prototype->dtype.lanes);
    }
    array_creation what = {.device = device,
                           .mode = BRIDGE_SHARED,
                           .order = 'C',
                           .ndim = prototype->ndim,
                           .shape = prototype->shape,
                           .dtype = prototype->dtype};
    return array_allocate(state, "Array", &what);
}

static int
allocate_tensor(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_context,
                void (*set_error)(void *context, const char *kind, const char *message))
{
    *out = NULL;
    PyGILState_STATE gil = PyGILState_Ensure(); /* the contract does not promise the GIL */
    PyObject *array = allocate_like(prototype);
    int result = array == NULL ? -1 : tensor_from_array(array, out);
    Py_XDECREF(array);
    if (result < 0) {
        result = report_error(error_context, set_error);
    }
    PyGILState_Release(gil);
    return result;
}

/* Metal has no convention for a current stream: torch and tvm-ffi return NULL as well. */
/* SPEC exchange-stream */
static int
current_stream(DLDeviceType Py_UNUSED(type), int32_t Py_UNUSED(id), void **out)
{
    *out = NULL;
    return 0;
}

/* ---- the table ---- */

static const DLPackExchangeAPI exchange_table = {
    .header = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .prev_api = NULL},
    .managed_tensor_allocator = allocate_tensor,
    .managed_tensor_from_py_object_no_sync = tensor_from_array,
    .managed_tensor_to_py_object_no_sync = tensor_to_array,
    .dltensor_from_py_object_no_sync = borrowed_from_array,
    .current_work_stream = current_stream,
};

/* SPEC exchange-table */
int
exchange_table_add(md_state *state)
{
    PyObject *capsule = PyCapsule_New((void *)&exchange_table, CAPSULE_EXCHANGE_API, NULL);
    if (capsule == NULL) {
        return -1;
    }
    /* Python cannot change the type; C still may, before anybody has used it. */
    int result = PyDict_SetItem(state->array_type->tp_dict,
                                state->str___dlpack_c_exchange_api__, capsule);
    Py_DECREF(capsule);
    PyType_Modified(state->array_type);
    return result;
}
