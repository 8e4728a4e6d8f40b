/* dlpack_producer.c: see dlpack_producer.h.
 *
 * Calls:   the producer's __dlpack_device__ and __dlpack__; dlpack_import.h for what they give.
 * Source:  array API standard 2025.12 from_dlpack.
 */
#include "exchange/dlpack_producer.h"

#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/owners.h"
#include "streams/device.h"

int
producer_speaks_dlpack(md_state *state, PyObject *op)
{
    if (PyCapsule_CheckExact(op)) { /* unreached: no public call asks for it */
        return 1;
    }
    return attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
}

/* Did the producer refuse a keyword?  Clears its TypeError then. */
static bool
wants_fewer_keywords(PyObject *capsule)
{
    if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return false;
    }
    PyErr_Clear();
    return true;
}

/* Call __dlpack__ with fewer and fewer keywords: a producer raises TypeError for one that it
 * does not know. */
/* SPEC import-old-producers */
static PyObject *
call_dlpack(md_state *state, PyObject *producer, int copy, bool is_told_not_to_wait)
{
    PyObject *copy_value = copy == 1 ? Py_True : Py_False;
    PyObject *args[] = {producer, state->max_version, copy_value, NULL};
    PyObject *capsule = NULL;
    if (is_told_not_to_wait) {
        PyObject *ordered[] = {producer, state->max_version, state->minus_one, copy_value};
        capsule = PyObject_VectorcallMethod(state->str___dlpack__, ordered, 1,
                                            copy >= 0 ? state->keywords_stream_copy
                                                      : state->keywords_stream);
        if (!wants_fewer_keywords(capsule)) {
            return capsule;
        }
    }
    if (copy >= 0) {
        capsule =
            PyObject_VectorcallMethod(state->str___dlpack__, args, 1, state->keywords_copy);
        if (!wants_fewer_keywords(capsule)) {
            return capsule;
        }
    }
    capsule =
        PyObject_VectorcallMethod(state->str___dlpack__, args, 1, state->keywords_version);
    if (!wants_fewer_keywords(capsule)) {
        return capsule;
    }
    return PyObject_VectorcallMethod(state->str___dlpack__, args, 1, NULL);
}

/* The device type that the producer reports.  -1 with an exception, also for devices that we
 * cannot read. */
/* SPEC import-other-device */
static int64_t
read_device_type(md_state *state, PyObject *producer)
{
    PyObject *pair = PyObject_CallMethodNoArgs(producer, state->str___dlpack_device__);
    int64_t device[2];
    int count;
    if (pair == NULL) {
        return -1;
    }
    int result = args_int64s("from_dlpack", "__dlpack_device__()", pair, device, 2, &count);
    if (result == 0 && (count != 2 || (device[0] != kDLMetal && device[0] != kDLCPU))) {
        PyErr_Format(
            PyExc_BufferError,
            "from_dlpack: %.100s reports device %R; only Metal (8) and the CPU (1) can be "
            "read.  Copy it to the CPU there first.",
            Py_TYPE(producer)->tp_name, pair);
        result = -1;
    }
    Py_DECREF(pair);
    return result < 0 ? -1 : device[0];
}

/* SPEC import-no-dlpack */
static PyObject *
refuse_producer(PyObject *producer)
{
    return PyErr_Format(
        PyExc_AttributeError,
        "from_dlpack: %.100s has no __dlpack__ and __dlpack_device__; use asarray() "
        "for lists, scalars and objects with the buffer protocol.",
        Py_TYPE(producer)->tp_name);
}

static void
release_capsule(PyObject *capsule)
{
    /* Its destructor can run the producer's code; our exception must survive that. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF(capsule);
    PyErr_Restore(type, value, traceback);
}

/* Import a tensor of an exchange table, which never synchronises. */
static PyObject *
import_tensor_of(md_state *state, PyObject *producer, DLManagedTensorVersioned *tensor,
                 const import_request *request)
{
    const char *maker = Py_TYPE(producer)->tp_name;
    PyObject *moment = NULL;
    bool is_metal = tensor->version.major == DLPACK_MAJOR_VERSION &&
                    tensor->dl_tensor.device.device_type == kDLMetal;
    if (is_metal && !request->order.is_ordered &&
        foreign_synchronize(state, producer, &moment) < 0) {
        dlpack_delete_foreign(tensor, true);
        return NULL;
    }
    if (moment == NULL) { /* the usual case, where a copy of the fresh request would stall */
        return dlpack_import_managed(state, tensor, maker, request);
    }
    import_request ordered = *request;
    ordered.moment = moment;
    PyObject *array = dlpack_import_managed(state, tensor, maker, &ordered);
    Py_DECREF(moment);
    return array;
}

/* SPEC import-errors */
static PyObject *
import_capsule_of(md_state *state, PyObject *producer, const import_request *request)
{
    import_request ordered = *request;
    int64_t device_type = read_device_type(state, producer);
    if (device_type < 0) { /* mutant survives (bound): never 0 */
        return NULL;
    }
    if (device_type == kDLMetal && !request->order.is_ordered &&
        foreign_synchronize(state, producer, &ordered.moment) < 0) {
        return NULL;
    }
    /* We copy CPU memory into Metal memory; the producer's own copy would be a second one. */
    bool copies_itself = request->copy == 1 && device_type == kDLCPU;
    /* A producer with __metal_stream__ says when its work is finished, and need not wait. */
    bool is_told_not_to_wait = ordered.moment == producer;
    ordered.is_honest = device_type == kDLCPU && array_numpy_is_honest(producer);
    PyObject *capsule =
        call_dlpack(state, producer, copies_itself ? -1 : request->copy, is_told_not_to_wait);
    PyObject *array = NULL;
    if (capsule != NULL) {
        array = dlpack_import_capsule(state, capsule, Py_TYPE(producer)->tp_name, &ordered);
        release_capsule(capsule);
    }
    else {
        array_numpy_explain_refusal(state, "from_dlpack", producer);
    }
    Py_XDECREF(ordered.moment);
    return array;
}

PyObject *
producer_import(md_state *state, PyObject *producer, const import_request *request)
{
    owners_drain(state);
    /* our memory has its MTLBuffer already, and GPU work is tracked by that */
    PyObject *own = array_behind(state, producer);
    if (own != NULL) {
        return dlpack_import_array(own, request);
    }
    if (PyCapsule_CheckExact(producer)) {
        return dlpack_import_capsule(state, producer, "a capsule's producer", request);
    }
    DLManagedTensorVersioned *tensor;
    int is_made = foreign_tensor_of(state, producer, &tensor);
    if (is_made != 0) {
        return is_made < 0 ? NULL : import_tensor_of(state, producer, tensor, request);
    }
    int speaks = producer_speaks_dlpack(state, producer);
    if (speaks <= 0) {
        return speaks < 0 ? NULL : refuse_producer(producer);
    }
    return import_capsule_of(state, producer, request);
}

/* ---- from_dlpack ---- */

bool
producer_is_cpu_name(PyObject *value)
{
    return value != NULL && PyUnicode_Check(value) &&
           PyUnicode_CompareWithASCIIString(value, "cpu") == 0;
}

PyDoc_STRVAR(
    from_dlpack_doc,
    "from_dlpack($module, x, /, *, device=None, copy=None, stream=None)\n--\n\n"
    "Import anything that speaks DLPack, without a copy where that is possible.\n\n"
    "Parameters\n----------\n"
    "x : object with __dlpack__ and __dlpack_device__, or a DLPack capsule\n"
    "    Data on Metal (kDLMetal) or on the CPU (kDLCPU).  CPU memory becomes a Metal buffer\n"
    "    over the pages that hold it.\n"
    "device : Device, 'metal', 'metal:0' or 'cpu', optional\n"
    "    Default: where the data is, and the default device for CPU data.  'cpu' gives the\n"
    "    host view of the result.\n"
    "copy : bool, optional\n"
    "    True: always copy.  False: never.  None: only if the memory cannot be shared.\n"
    "stream : Stream or int, optional\n"
    "    None: the GPU work on the data, ours and the producer's, is complete on return: safe "
    "to\n"
    "    read at once, from anywhere.  A Stream, or the handle of its command queue: the\n"
    "    data is used there.  The queue waits on the GPU if the producer can say what to\n"
    "    wait for; see __metal_stream__ and register_sync.  -1: no synchronisation, the\n"
    "    caller has done it.\n\n"
    "Returns\n-------\n"
    "Array\n"
    "    Keeps the producer's memory alive as long as it, a view or an export of it lives.\n"
    "    Read-only where the producer says so.\n\n"
    "Raises\n------\n"
    "AttributeError\n    x has no __dlpack__ or __dlpack_device__.\n"
    "CopyRequiredError\n    copy=False, and the memory cannot be shared.\n"
    "BufferError\n"
    "    The device is neither Metal nor the CPU; DLPack 1.3 lacks the element type; the\n"
    "    metadata reach outside the buffer; the capsule was consumed; the major version\n"
    "    differs; or a torch tensor has its negative bit set.\n"
    "MetalError\n    GPU work that was waited for has failed.\n\n"
    "Threads: the GIL is released while waiting and copying.  The producer's deleter is\n"
    "called exactly once, on a thread that holds the GIL.\n\n"
    "Source: array API standard 2025.12, from_dlpack; dlpack.h 1.3.");

/* SPEC import-device */
static PyObject *
core_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "from_dlpack", 1, 1, 1, {"x", "device", "copy", "stream", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[4];
    import_request request = {.copy = -1};
    if (nargs == 1 && kwnames == NULL) { /* what most callers do */
        return producer_import(state, args[0], &request);
    }
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        args_tristate("from_dlpack", "copy", values[2], &request.copy) < 0) {
        return NULL;
    }
    bool wants_host = producer_is_cpu_name(values[1]);
    if (!wants_host && args_is_given(values[1])) {
        request.device = device_convert(state, "from_dlpack", values[1]);
        if (request.device == NULL) {
            return NULL;
        }
    }
    if (stream_convert_order(state, "from_dlpack", values[3], &request.order) < 0) {
        return NULL;
    }
    PyObject *array = producer_import(state, values[0], &request);
    stream_release(request.order.stream);
    if (array == NULL || !wants_host) {
        return array;
    }
    PyObject *host = array_get_host(array, NULL);
    Py_DECREF(array);
    return host;
}

PyMethodDef producer_functions[] = {
    {"from_dlpack", MD_FASTCALL(core_from_dlpack), from_dlpack_doc},
    {NULL, NULL, 0, NULL},
};
