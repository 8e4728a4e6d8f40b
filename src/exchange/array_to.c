/* array_to.c: Array.to, the array in another framework, and Array.to_device.
 *
 * Calls:   foreign_types.h for the target's table, dlpack_export.h for the tensor.
 * Threads: the GIL is held; released while waiting and copying.
 */
#include "array/array.h"
#include "array/array_methods.h"
#include "exchange/dlpack_export.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "exchange/torch.h"
#include "metal/managed_tensor.h"
#include "metal/tracking.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"
#include "streams/wait_rule.h"

const char array_doc_to[] =
    "to($self, target, /)\n--\n\n"
    "Give the array to another framework, which shares the memory where it can.\n\n"
    "Parameters\n----------\n"
    "target : type or module\n"
    "    A type with __dlpack_c_exchange_api__ (torch.Tensor), the fast way; or a module with\n"
    "    from_dlpack (torch, numpy, jax.numpy, mlx.core), whose `Tensor` is taken if it has\n"
    "    such a table.\n\n"
    "Returns\n-------\n"
    "object\n    The target's array.  A module that does not take Metal memory gets `host`.\n\n"
    "Raises\n------\n"
    "TypeError\n    The target is neither.\n"
    "BufferError\n    As __dlpack__; and whatever the target raises.\n"
    "MetalError\n    GPU work that was waited for has failed.\n\n"
    "On a Mac torch's own queue waits, on the GPU, for our work in flight on the buffer.\n"
    "For any other target the CPU waits, as with stream=None.\n\n"
    "Source: dlpack.h 1.3 DLPackExchangeAPI.managed_tensor_to_py_object_no_sync.";

/* TypeError that says what was meant: a device, a package, an element type. */
static PyObject *
refuse_target(PyObject *target)
{
    PyObject *text = call_python(CALL_REFUSED_TARGET, target, NULL);
    if (text != NULL) {
        PyErr_SetObject(PyExc_TypeError, text);
        Py_DECREF(text);
    }
    return NULL;
}

/* ---- by the exchange table ---- */

/* Our tensor for a target's table: owned, ended by its deleter.  Where foreign_types.h knows how,
 * the target's queue waits on the GPU for work in flight.  NULL with an exception. */
static DLManagedTensorVersioned *
export_for(md_state *state, PyObject *op, PyTypeObject *target, bool is_torchs)
{
    export_request request = {.is_versioned = true, .device = kDLMetal, .copy = -1};
    if (is_torchs && torch_check_memory(state, "Array.to") < 0) {
        return NULL;
    }
    bool is_quiet = tracking_is_quiet(array_storage(array_cast(op))->handle);
    int is_told = is_quiet ? 0 : foreign_order_taker(state, target, array_cast(op));
    if (is_told < 0) {
        return NULL;
    }
    request.order.is_ordered = is_told == 1;
    DLManagedTensorVersioned *tensor = dlpack_export(array_cast(op), &request);
    if (tensor == NULL) {
        refusal_note();
    }
    return tensor;
}

/* SPEC exchange-to */
static PyObject *
to_type(md_state *state, PyObject *op, PyTypeObject *target)
{
    void *result;
    const foreign_type *known = foreign_type_of(state, target);
    if (known == NULL) {
        return NULL;
    }
    const DLPackExchangeAPI *table = known->table;
    if (table == NULL) {
        return refuse_target((PyObject *)target);
    }
    DLManagedTensorVersioned *tensor = export_for(state, op, target, known->is_torchs);
    if (tensor == NULL) {
        return NULL;
    }
    if (managed_hand_over(tensor, table->managed_tensor_to_py_object_no_sync, &result)) {
        return result;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "Array.to: %.100s refused the tensor without a reason.",
                     target->tp_name);
    }
    return NULL;
}

/* The module's Tensor type, if it has a table: faster than its from_dlpack, and its queue
 * can wait on the GPU.  1: `*out` is it, owned (+1).  0: it has none.  -1: an exception. */
static int
tensor_type_of(md_state *state, PyObject *module, PyObject **out)
{
    int result = attribute_find(module, state->str_Tensor, out);
    bool has_table = false;
    if (result == 1 && PyType_Check(*out)) {
        const foreign_type *known = foreign_type_of(state, (PyTypeObject *)*out);
        result = known == NULL ? -1 : 0;
        has_table = known != NULL && known->table != NULL;
    }
    if (has_table) {
        return 1;
    }
    Py_CLEAR(*out);
    return result < 0 ? -1 : 0;
}

/* Did the module refuse Metal memory?  Any other exception is passed on, and nothing is
 * tried again. */
static bool
is_refusal(const md_state *state)
{
    return PyErr_ExceptionMatches(PyExc_Exception) &&
           !PyErr_ExceptionMatches(PyExc_MemoryError) &&
           !PyErr_ExceptionMatches(state->metal_error);
}

/* Offer Metal memory; if the module refuses it, offer the host view.  If it refuses both,
 * raise the first refusal. */
static PyObject *
to_from_dlpack(md_state *state, PyObject *op, PyObject *target)
{
    PyObject *result = PyObject_CallMethodOneArg(target, state->str_from_dlpack, op);
    if (result != NULL || array_storage(array_cast(op))->mode == BRIDGE_PRIVATE ||
        !is_refusal(state)) {
        return result;
    }
    PyObject *refusal = errors_take();
    PyObject *host = array_get_host(op, NULL);
    if (host != NULL) {
        result = PyObject_CallMethodOneArg(target, state->str_from_dlpack, host);
        Py_DECREF(host);
    }
    if (result == NULL) { /* unreached: no test makes it fail here */
        errors_restore(refusal);
        return NULL;
    }
    Py_DECREF(refusal);
    return result;
}

PyObject *
array_method_to(PyObject *op, PyObject *target)
{
    md_state *state = state_of(op);
    if (PyType_Check(target)) {
        return to_type(state, op, (PyTypeObject *)target);
    }
    int is_module = attribute_exists(target, state->str_from_dlpack);
    if (is_module < 0) {
        return NULL;
    }
    if (!is_module) {
        return refuse_target(target);
    }
    PyObject *type = NULL;
    int has_type = tensor_type_of(state, target, &type);
    if (has_type < 0) {
        return NULL;
    }
    PyObject *result =
        has_type ? to_type(state, op, (PyTypeObject *)type) : to_from_dlpack(state, op, target);
    Py_XDECREF(type);
    return result;
}

/* ---- another device ---- */

static const char to_device[] = "Array.to_device";

/* The device that a pair names, or NULL with `*is_cpu`; NULL without it: an exception. */
static const device_record *
convert_pair(PyObject *value, bool *is_cpu)
{
    int64_t pair[2];
    int count;
    if (args_int64s(to_device, "device", value, pair, 2, &count) < 0) {
        return NULL;
    }
    if (count == 2 && pair[0] == kDLMetal && pair[1] >= 0 && pair[1] < devices_count()) {
        return devices_get((int)pair[1]);
    }
    *is_cpu = count == 2 && pair[0] == kDLCPU && pair[1] == 0;
    if (!*is_cpu) {
        PyErr_Format(PyExc_ValueError,
                     "%s: device %R is neither a Metal device of devices() (8, index) nor the "
                     "CPU (1, 0).",
                     to_device, value);
    }
    return NULL;
}

static const device_record *
convert_place(md_state *state, PyObject *value, bool *is_cpu)
{
    *is_cpu = dlpack_is_cpu_name(value);
    if (*is_cpu) {
        return NULL;
    }
    if (PyTuple_Check(value)) {
        return convert_pair(value, is_cpu);
    }
    if (value == Py_None) {
        PyErr_Format(PyExc_TypeError,
                     "%s: device must be a Device, a name such as 'metal:0' or 'cpu', or a "
                     "pair as __dlpack_device__ returns it, not None.",
                     to_device);
        return NULL;
    }
    return device_convert(state, to_device, value);
}

/* Copy private storage, which has no address, to shared storage first. */
static PyObject *
to_cpu(ArrayObject *self)
{
    if (array_storage(self)->mode != BRIDGE_PRIVATE) {
        return array_get_host((PyObject *)self, NULL);
    }
    array_creation what = array_like(self);
    what.mode = BRIDGE_SHARED;
    PyObject *copy = array_copied("Array.to_device", self, &what, NULL);
    PyObject *host = copy == NULL ? NULL : array_get_host(copy, NULL);
    Py_XDECREF(copy);
    return host;
}

const char array_doc_to_device[] =
    "to_device($self, /, device, stream=None)\n--\n\n"
    "This array on another device.\n\n"
    "Parameters\n----------\n"
    "device : Device, 'metal', 'metal:0', 'cpu', or a pair as __dlpack_device__ returns it\n"
    "stream : Stream or int, optional\n"
    "    A Stream, or the handle of its command queue: the array is used there next, and the\n"
    "    queue waits on the GPU for work that is in flight.  None and -1: every user of the\n"
    "    array waits, as usual.\n\n"
    "Returns\n-------\n"
    "Array or HostView\n"
    "    Of the same device: this array itself.  Of another Metal device: a copy in C order,\n"
    "    in the same storage mode.  'cpu': the host view of the same memory; of private\n"
    "    storage, of a shared copy.\n\n"
    "Raises\n------\n"
    "ValueError\n    There is no such device.\n"
    "TypeError\n    device or stream has a wrong type.\n"
    "BufferError\n    stream is an int that is not the handle of a known queue.\n"
    "MemoryError\n    Metal has no memory left for the copy.\n\n"
    "Threads: the GIL is released while waiting and copying.\n\n"
    "Source: array API standard 2025.12, array.to_device.";

ARGS_METHOD(array_method_to_device, op, "Array.to_device", 0, 2, 1, "device", "stream")
{
    md_state *state = state_of(op);
    PyObject *result = NULL;
    import_request request = {.copy = -1};
    bool is_cpu = false;
    request.device = convert_place(state, values[0], &is_cpu);
    if ((request.device == NULL && !is_cpu) ||
        stream_convert_order(state, to_device, values[1], &request.order) < 0) {
        return NULL;
    }
    metal_storage *storage = array_storage(array_cast(op));
    bool is_here = is_cpu || request.device == storage->device;
    if (!is_here) {
        result = dlpack_import_array(op, &request);
    }
    else if (request.order.stream == NULL ||
             wait_rule_for_gpu(state, to_device, storage, &request.order) == 0) {
        result = is_cpu ? to_cpu(array_cast(op)) : Py_NewRef(op);
    }
    stream_release(request.order.stream);
    return result;
}
