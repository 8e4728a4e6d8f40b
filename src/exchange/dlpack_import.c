/* dlpack_import.c: see dlpack_import.h.
 *
 * Owns:    the rules of which tensor is shared, copied or refused.
 * Calls:   foreign_tensor.h to open and check it; storage.h, owners.h to keep it.
 * Source:  array API standard 2025.12 from_dlpack; dlpack.h 1.3.
 */
#include "exchange/dlpack_import.h"

#include "array/array_methods.h"
#include "exchange/foreign_tensor.h"
#include "exchange/host_memory.h"
#include "metal/lookup.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/stream_protocol.h"
#include "streams/wait_rule.h"

static const char from_dlpack[] = "from_dlpack";

static bool
is_readonly(const foreign_tensor *foreign)
{
    return (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
}

static storage_owner
owner_of(md_state *state, const foreign_tensor *foreign)
{
    return owners_of_tensor(state, foreign->managed, foreign->is_versioned, foreign->keeper);
}

/* ---- memory of the CPU, or none ---- */

/* A kDLCPU tensor, which is itself the owner; or any without items, whose `data` is not looked
 * at: it keeps its strides and flags, unless a copy is asked for. */
/* SPEC import-readonly, import-copy-false, import-empty */
static PyObject *
import_cpu(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    const DLTensor *tensor = foreign->tensor;
    bool is_empty = foreign->facts.nitems == 0;
    const device_record *device = import_request_device(state, from_dlpack, request);
    if (device == NULL || foreign_take(foreign) < 0) {
        return NULL;
    }
    host_items items = {is_empty ? NULL : (char *)tensor->data + tensor->byte_offset,
                        &foreign->facts.layout,
                        tensor->dtype,
                        is_empty,
                        is_readonly(foreign),
                        foreign->facts.is_padded,
                        foreign->is_honest};
    storage_owner owner = owner_of(state, foreign);
    PyObject *array =
        host_memory_import(state, from_dlpack, &items, &owner, device, request->copy);
    if (owner.object == NULL) {
        foreign->managed = foreign->keeper = NULL; /* the storage's */
    }
    return array;
}

/* ---- memory of Metal ---- */

/* The storage of a checked tensor, which becomes its owner.  Steals `parent`, the storage of the
 * handle if we made it.  NULL with an exception. */
/* SPEC import-keeps */
static metal_storage *
wrap(md_state *state, foreign_tensor *foreign, metal_storage *parent)
{
    dlpack_fault fault;
    const device_record *device;
    metal_storage *storage;
    bool is_sound = foreign_check_buffer(foreign, parent, &device, &fault);
    if (!is_sound) {
        (void)foreign_refuse(from_dlpack, foreign, &fault);
    }
    if (!is_sound || foreign_take(foreign) < 0) {
        storage_release(parent);
        return NULL;
    }
    storage_owner owner = owner_of(state, foreign);
    bridge_buffer *handle = foreign->tensor->data;
    size_t nbytes = parent != NULL ? parent->nbytes : bridge_buffer_nbytes(handle);
    bridge_status status =
        storage_wrap_buffer(handle, parent, device, nbytes, &owner, &storage);
    if (errors_check_status(state, from_dlpack, status, NULL, 0) < 0) {
        return NULL;
    }
    foreign->managed = foreign->keeper = NULL; /* the storage's */
    return storage;
}

/* SPEC import-readonly */
static PyObject *
import_metal(md_state *state, foreign_tensor *foreign)
{
    metal_storage *parent = lookup_handle(foreign->tensor->data);
    if (parent == NULL && errors_check_fork(state, from_dlpack) < 0) {
        return NULL;
    }
    metal_storage *storage = wrap(state, foreign, parent);
    if (storage == NULL) {
        return NULL;
    }
    const DLTensor *tensor = foreign->tensor;
    /* The flag is that of this tensor; consumers drop it, and the memory stays what it is. */
    storage->is_readonly |= is_readonly(foreign) || lookup_is_readonly(storage->handle);
    return array_over_storage(state, storage, (int64_t)tensor->byte_offset,
                              &foreign->facts.layout, tensor->dtype, is_readonly(foreign),
                              foreign->facts.is_padded);
}

/* ---- the rest of what was asked ---- */

/* Order GPU work; copy to another device, or where the producer did not make the copy that was
 * asked for.  `foreign` is NULL for our Array.  Steals `op`, which may be NULL. */
/* SPEC import-copy-true, import-copy-false */
static PyObject *
finish_metal(md_state *state, PyObject *op, const foreign_tensor *foreign,
             const import_request *request)
{
    if (op == NULL) {
        return NULL;
    }
    ArrayObject *array = array_cast(op);
    metal_storage *storage = array_storage(array);
    PyObject *moment = foreign == NULL ? NULL : foreign->moment;
    int result =
        moment == NULL
            ? wait_rule_for_gpu(state, "from_dlpack", storage, &request->order)
            : stream_protocol_order(state, "from_dlpack", &request->order, storage, moment);
    if (result < 0) {
        Py_DECREF(op);
        return NULL;
    }
    bool is_elsewhere = request->device != NULL && request->device != storage->device;
    bool is_copied = foreign != NULL && (foreign->flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
    if (!is_elsewhere && (request->copy != 1 || is_copied)) {
        return op;
    }
    PyObject *copy;
    if (!is_elsewhere || request->copy != 0) { /* or the producer ignores `copy` */
        array_creation what = array_like(array);
        what.device = is_elsewhere ? request->device : what.device;
        copy = array_copied("from_dlpack", array, &what, NULL);
    }
    else {
        copy = errors_copy_required(
            state,
            "from_dlpack: the data is on metal:%d and device asks for metal:%d; a copy is "
            "needed and copy=False forbids it; pass copy=None.",
            storage->device->index, request->device->index);
    }
    Py_DECREF(op);
    return copy;
}

PyObject *
dlpack_import_array(PyObject *op, const import_request *request)
{
    return finish_metal(state_of(op), array_alias(array_cast(op)), NULL, request);
}

/* ---- any tensor ---- */

/* SPEC import-untouched */
static PyObject *
import_tensor(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    dlpack_fault fault;
    if (!foreign_check(foreign, &fault)) {
        if (fault.code == DLPACK_FAULT_MAJOR && foreign_take(foreign) < 0) {
            return NULL; /* SPEC dlpack.h DLManagedTensorVersioned: call the deleter */
        }
        (void)foreign_refuse(from_dlpack, foreign, &fault);
        return NULL;
    }
    if (foreign->facts.nitems == 0 || foreign->tensor->device.device_type == kDLCPU) {
        return import_cpu(state, foreign, request);
    }
    return finish_metal(state, import_metal(state, foreign), foreign, request);
}

PyObject *
dlpack_import_managed(DLManagedTensorVersioned *managed, const char *maker,
                      const import_request *request)
{
    md_state *state = state_of_interpreter();
    if (state == NULL) {
        owners_delete_tensor(managed, true);
        return NULL;
    }
    foreign_tensor foreign;
    foreign_open_managed(managed, maker, &foreign);
    PyObject *array = import_tensor(state, &foreign, request);
    foreign_close(&foreign);
    return array;
}

PyObject *
dlpack_import(md_state *state, PyObject *producer, const import_request *request)
{
    owners_drain(state);
    /* our memory has its MTLBuffer already, and GPU work is tracked by that */
    PyObject *own = array_behind(state, producer);
    if (__builtin_expect(own != NULL,
                         0)) { /* else gcc cuts this function in two: 12 instructions */
        return dlpack_import_array(own, request);
    }
    foreign_tensor foreign;
    if (foreign_open(state, from_dlpack, producer, request, &foreign) < 0) {
        return NULL;
    }
    PyObject *array = import_tensor(state, &foreign, request);
    foreign_close(&foreign);
    return array;
}

/* ---- from_dlpack ---- */

bool
dlpack_is_cpu_name(PyObject *value)
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
    "    None: the GPU work on the data, ours and the producer's, is complete on return: safe\n"
    "    to read at once, from anywhere.  A Stream, or the handle of its command queue: the\n"
    "    data is used there.  The queue waits on the GPU if the producer can say what to wait\n"
    "    for; see __metal_stream__ and register_sync.  -1: no synchronisation, the caller has\n"
    "    done it.\n\n"
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
        return dlpack_import(state, args[0], &request);
    }
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        args_tristate("from_dlpack", "copy", values[2], &request.copy) < 0) {
        return NULL;
    }
    bool wants_host = dlpack_is_cpu_name(values[1]);
    if (!wants_host && args_is_given(values[1])) {
        request.device = device_convert(state, "from_dlpack", values[1]);
        if (request.device == NULL) {
            return NULL;
        }
    }
    if (stream_convert_order(state, "from_dlpack", values[3], &request.order) < 0) {
        return NULL;
    }
    PyObject *array = dlpack_import(state, values[0], &request);
    stream_release(request.order.stream);
    if (array == NULL || !wants_host) {
        return array;
    }
    PyObject *host = array_get_host(array, NULL);
    Py_DECREF(array);
    return host;
}

PyMethodDef dlpack_import_functions[] = {
    {"from_dlpack", MD_FASTCALL(core_from_dlpack), from_dlpack_doc},
    {NULL, NULL, 0, NULL},
};
