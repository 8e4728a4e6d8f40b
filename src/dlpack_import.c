/* dlpack_import.c: see dlpack_import.h.
 *
 * Owns:    the rules of what is taken from whom.
 * Calls:   dlpack_check.h before anything is touched; storage.h, owners.h to keep it.
 * Source:  array API standard 2025.12 from_dlpack; dlpack.h 1.3.
 */
#include "dlpack_import.h"

#include "args.h"
#include "array_map.h"
#include "array_methods.h"
#include "copy.h"
#include "device.h"
#include "dlpack_check.h"
#include "dlpack_export.h"
#include "errors.h"
#include "managed.h"
#include "owners.h"

/* A tensor inside a capsule. */
typedef struct foreign_tensor {
    PyObject *capsule;      /* borrowed */
    const char *maker;      /* the producer's type, for messages; borrowed */
    void *managed;          /* the capsule's until take_tensor; then ours to delete once */
    const DLTensor *tensor; /* within `managed` */
    uint64_t flags;         /* 0 for a legacy tensor */
    bool is_versioned;
    dlpack_facts facts; /* once checked */
} foreign_tensor;

static PyObject *
refuse(const foreign_tensor *foreign, const dlpack_fault *fault)
{
    char text[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(text, sizeof text, dlpack_fault_text(fault->code), (long long)fault->a,
                   (long long)fault->b, (long long)fault->c);
#pragma GCC diagnostic pop
    return PyErr_Format(PyExc_BufferError, "from_dlpack: %s, in the tensor that %s made.", text,
                        foreign->maker);
}

/* ---- the capsule ---- */

/* From here on the tensor is ours.  The rename says so to the capsule's destructor and to whoever
 * tries the capsule again. */
static int
take_tensor(foreign_tensor *foreign)
{
    const char *used = foreign->is_versioned ? CAPSULE_VERSIONED_USED : CAPSULE_LEGACY_USED;
    return PyCapsule_SetName(foreign->capsule, used);
}

static int
open_versioned(foreign_tensor *foreign)
{
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(foreign->capsule, CAPSULE_VERSIONED);
    foreign->is_versioned = true;
    foreign->managed = managed;
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
        /* SPEC dlpack.h DLManagedTensorVersioned: call the deleter, touch nothing else. */
        uint32_t major = managed->version.major, minor = managed->version.minor;
        if (take_tensor(foreign) == 0) {
            managed_delete(managed, true);
            PyErr_Format(PyExc_BufferError,
                         "from_dlpack: %s made a tensor of DLPack %u.%u; only major version %d is "
                         "understood.",
                         foreign->maker, major, minor, DLPACK_MAJOR_VERSION);
        }
        return -1;
    }
    foreign->flags = managed->flags;
    foreign->tensor = &managed->dl_tensor;
    return 0;
}

static int
open_capsule(PyObject *capsule, const char *maker, foreign_tensor *out)
{
    *out = (foreign_tensor){.capsule = capsule, .maker = maker};
    if (!PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError,
                     "from_dlpack: __dlpack__ of %s returned %.100s instead of a capsule.", maker,
                     Py_TYPE(capsule)->tp_name);
        return -1;
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_VERSIONED)) {
        return open_versioned(out);
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_LEGACY)) {
        out->managed = PyCapsule_GetPointer(capsule, CAPSULE_LEGACY);
        out->tensor = &((DLManagedTensor *)out->managed)->dl_tensor;
        return 0;
    }
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && strncmp(name, "used_dltensor", 13) == 0) {
        PyErr_SetString(PyExc_BufferError, "from_dlpack: the capsule was already consumed; a capsule "
                                           "can be taken once, so ask the producer for another.");
        return -1;
    }
    PyErr_Format(PyExc_BufferError,
                 "from_dlpack: a capsule named '%.100s' is not a DLPack tensor ('dltensor' or "
                 "'dltensor_versioned').",
                 name == NULL ? "" : name);
    return -1;
}

/* ---- memory of the CPU ---- */

static PyObject *
copy_memory(md_state *state, const char *function, char *address, const strided_layout *layout,
            DLDataType dtype, const device_record *device)
{
    PyObject *op = array_allocate(state, function, device, BRIDGE_SHARED, layout->ndim,
                                  layout->shape, dtype, 'C');
    if (op == NULL || array_cast(op)->nitems == 0) {
        return op;
    }
    if (!dtype_is_whole_bytes(dtype)) { /* packed and compact: the bytes themselves */
        memcpy(array_storage(array_cast(op))->address, address,
               (size_t)array_nbytes(array_cast(op)));
        return op;
    }
    strided_layout dense;
    bool is_done;
    array_get_layout(array_cast(op), &dense);
    char *origin = array_storage(array_cast(op))->address;
    Py_BEGIN_ALLOW_THREADS
    is_done = copy_strided(&dense, origin, layout, address);
    Py_END_ALLOW_THREADS
    if (!is_done) {
        Py_CLEAR(op);
        PyErr_NoMemory();
    }
    return op;
}

/* The bytes that the items lie in, relative to element 0. */
static void
measure(const strided_layout *layout, DLDataType dtype, int64_t *first, int64_t *end)
{
    int64_t lowest, highest;
    if (!dtype_is_whole_bytes(dtype)) {
        *first = 0;
        (void)dtype_packed_nbytes(dtype, layout_volume(layout), end);
        return;
    }
    layout_offset_bounds(layout, &lowest, &highest);
    *first = lowest * layout->itemsize;
    *end = (highest + 1) * layout->itemsize;
}

/* An Array over the pages of CPU memory.  `owner` is taken on success only.  NULL without an exception
 * and with `*why` set: Metal cannot share it. */
static PyObject *
share_memory(md_state *state, char *address, const strided_layout *layout, DLDataType dtype,
             bool is_readonly, const storage_owner *owner, const device_record *device,
             const char **why)
{
    metal_storage *storage;
    size_t offset;
    int64_t first, end;
    bridge_status status;
    *why = NULL;
    if ((uintptr_t)address % (uintptr_t)dtype_alignment(dtype) != 0) {
        *why = "the address of its first item is not a multiple of the element's alignment";
        return NULL;
    }
    measure(layout, dtype, &first, &end);
    Py_BEGIN_ALLOW_THREADS
    status = storage_wrap_host(device, address + first, (size_t)(end - first), owner, &storage,
                               &offset);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        *why = bridge_status_text(status);
        return NULL;
    }
    storage->is_readonly = is_readonly;
    PyObject *buffer = buffer_from_storage(state, storage);
    if (buffer == NULL) {
        return NULL;
    }
    PyObject *array =
        array_new(state, buffer, (int64_t)offset - first, layout, dtype, is_readonly);
    Py_DECREF(buffer);
    return array;
}

static PyObject *
refuse_sharing(md_state *state, const char *function, const char *why)
{
    return errors_copy_required(state,
                                "%s: the memory cannot be shared with Metal: %s; a copy is needed "
                                "and copy=False forbids it.",
                                function, why);
}

PyObject *
dlpack_import_memory(md_state *state, const char *function, char *address,
                     const strided_layout *layout, DLDataType dtype, bool is_readonly,
                     PyObject *owner, const import_request *request)
{
    const device_record *device =
        request->device != NULL ? request->device : device_convert(state, function, NULL);
    if (device == NULL) {
        return NULL;
    }
    const char *why;
    if (request->copy != 1 && layout_volume(layout) > 0) {
        storage_owner record = owners_of_object(state, Py_NewRef(owner));
        PyObject *array = share_memory(state, address, layout, dtype, is_readonly, &record,
                                       device, &why);
        if (array != NULL) {
            return array;
        }
        if (PyErr_Occurred()) {
            return NULL; /* the storage had taken the owner, and let it go */
        }
        Py_DECREF(owner);
        if (request->copy == 0) {
            return refuse_sharing(state, function, why);
        }
    }
    return copy_memory(state, function, address, layout, dtype, device);
}

/* A kDLCPU tensor: the tensor itself is the owner. */
static PyObject *
import_cpu(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    const DLTensor *tensor = foreign->tensor;
    const device_record *device = request->device != NULL
                                      ? request->device
                                      : device_convert(state, "from_dlpack", NULL);
    if (device == NULL) {
        return NULL;
    }
    char *address = (char *)tensor->data + tensor->byte_offset;
    bool is_copied = (foreign->flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
    const char *why = NULL;
    if (request->copy != 1 || is_copied) {
        bool is_readonly = (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
        storage_owner record = owners_of_tensor(state, foreign->managed, foreign->is_versioned);
        if (take_tensor(foreign) < 0) {
            return NULL;
        }
        PyObject *array = share_memory(state, address, &foreign->facts.layout, tensor->dtype,
                                       is_readonly, &record, device, &why);
        if (array != NULL || PyErr_Occurred()) {
            return array;
        }
        if (request->copy == 0) {
            managed_delete(foreign->managed, foreign->is_versioned);
            return refuse_sharing(state, "from_dlpack", why);
        }
    }
    else if (take_tensor(foreign) < 0) {
        return NULL;
    }
    PyObject *copy = copy_memory(state, "from_dlpack", address, &foreign->facts.layout,
                                 tensor->dtype, device);
    managed_delete(foreign->managed, foreign->is_versioned);
    return copy;
}

/* ---- memory of Metal ---- */

/* The device of a kDLMetal tensor, after all that can be wrong with its handle.  NULL with BufferError. */
static const device_record *
check_metal(foreign_tensor *foreign)
{
    const DLTensor *tensor = foreign->tensor;
    dlpack_fault fault;
    if (!bridge_handle_is_buffer(tensor->data)) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: data (%p) of the kDLMetal tensor that %s made is not an "
                     "id<MTLBuffer>; a host pointer belongs into a kDLCPU tensor.",
                     tensor->data, foreign->maker);
        return NULL;
    }
    bridge_buffer *handle = tensor->data;
    if (!dlpack_check_bounds(tensor, &foreign->facts, bridge_buffer_nbytes(handle), &fault)) {
        (void)refuse(foreign, &fault);
        return NULL;
    }
    const device_record *device = devices_find(bridge_buffer_device(handle));
    int32_t id = tensor->device.device_id;
    if (device == NULL || (id != 0 && id != device->index)) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: the tensor that %s made names device (8, %d), but its MTLBuffer "
                     "belongs to another device.",
                     foreign->maker, (int)id);
        return NULL;
    }
    return device;
}

static PyObject *
import_metal(md_state *state, foreign_tensor *foreign)
{
    const DLTensor *tensor = foreign->tensor;
    const device_record *device = check_metal(foreign);
    if (device == NULL || take_tensor(foreign) < 0) {
        return NULL;
    }
    bool is_readonly = (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    storage_owner record = owners_of_tensor(state, foreign->managed, foreign->is_versioned);
    metal_storage *storage;
    bridge_buffer *handle = tensor->data;
    bridge_status status =
        storage_wrap_buffer(handle, device, bridge_buffer_nbytes(handle), &record, &storage);
    if (status != BRIDGE_OK) {
        managed_delete(foreign->managed, foreign->is_versioned);
        return errors_from_bridge(state, "from_dlpack", status, NULL, 0);
    }
    storage->is_readonly = is_readonly;
    PyObject *buffer = buffer_from_storage(state, storage);
    if (buffer == NULL) {
        return NULL;
    }
    PyObject *array = array_new(state, buffer, (int64_t)tensor->byte_offset,
                                &foreign->facts.layout, tensor->dtype, is_readonly);
    Py_DECREF(buffer);
    return array;
}

/* ---- any capsule ---- */

/* No items: nothing to share, and `data` is not looked at. */
static PyObject *
import_empty(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    const device_record *device = request->device != NULL
                                      ? request->device
                                      : device_convert(state, "from_dlpack", NULL);
    if (device == NULL || take_tensor(foreign) < 0) {
        return NULL;
    }
    const dlpack_facts *facts = &foreign->facts;
    PyObject *array = array_allocate(state, "from_dlpack", device, BRIDGE_SHARED,
                                     facts->layout.ndim, facts->layout.shape,
                                     foreign->tensor->dtype, 'C');
    managed_delete(foreign->managed, foreign->is_versioned);
    return array;
}

/* The rest of what was asked: a copy that the producer did not make, another device. */
static PyObject *
finish_metal(PyObject *array, const foreign_tensor *foreign, const import_request *request)
{
    if (array == NULL) {
        return NULL;
    }
    metal_storage *storage = array_storage(array_cast(array));
    bool is_elsewhere = request->device != NULL && request->device != storage->device;
    bool is_copied = (foreign->flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
    PyObject *result;
    if (is_elsewhere && request->copy == 0) {
        result = errors_copy_required(state_of(array),
                                      "from_dlpack: the data is on metal:%d and device asks for "
                                      "metal:%d; a copy is needed and copy=False forbids it.",
                                      storage->device->index, request->device->index);
    }
    else if (is_elsewhere) {
        result = array_allocate(state_of(array), "from_dlpack", request->device, storage->mode,
                                array_cast(array)->ndim, array_shape(array_cast(array)),
                                array_cast(array)->dtype, 'C');
        if (result != NULL &&
            array_copy_items("from_dlpack", array_cast(result), array_cast(array)) < 0) {
            Py_CLEAR(result);
        }
    }
    else if (request->copy == 1 && !is_copied) {
        /* The producer does not take `copy`, or ignores it. */
        result = array_copied(array_cast(array), 'C', storage->mode);
    }
    else {
        return array;
    }
    Py_DECREF(array);
    return result;
}

static PyObject *
import_capsule(md_state *state, PyObject *capsule, const char *maker,
               const import_request *request)
{
    foreign_tensor foreign;
    dlpack_fault fault;
    if (open_capsule(capsule, maker, &foreign) < 0) {
        return NULL;
    }
    DLDevice device = foreign.tensor->device;
    if (device.device_type != kDLMetal && device.device_type != kDLCPU) {
        return PyErr_Format(PyExc_BufferError,
                            "from_dlpack: the tensor that %s made is on device (%d, %d); only Metal "
                            "(8) and the CPU (1) can be read.  Copy it to the CPU there first.",
                            maker, (int)device.device_type, (int)device.device_id);
    }
    bool is_padded = (foreign.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
    if (!dlpack_check(foreign.tensor, is_padded, &foreign.facts, &fault)) {
        return refuse(&foreign, &fault);
    }
    if (foreign.facts.nitems == 0) {
        return import_empty(state, &foreign, request);
    }
    if (device.device_type == kDLCPU) {
        return import_cpu(state, &foreign, request);
    }
    return finish_metal(import_metal(state, &foreign), &foreign, request);
}

/* ---- producers ---- */

bool
dlpack_is_producer(md_state *state, PyObject *op)
{
    if (PyCapsule_CheckExact(op)) {
        return true;
    }
    PyObject *method = PyObject_GetAttr((PyObject *)Py_TYPE(op), state->str___dlpack__);
    if (method == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(method);
    return true;
}

/* __dlpack__ with the keywords that the producer takes: it says TypeError to what it does not know. */
static PyObject *
call_dlpack(md_state *state, PyObject *producer, int copy)
{
    PyObject *copy_value = copy == 1 ? Py_True : Py_False;
    PyObject *args[] = {producer, state->max_version, copy_value};
    PyObject *capsule = NULL;
    if (copy >= 0) {
        capsule = PyObject_VectorcallMethod(state->str___dlpack__, args, 1,
                                            state->keywords_copy);
        if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) {
            return capsule;
        }
        PyErr_Clear();
    }
    capsule = PyObject_VectorcallMethod(state->str___dlpack__, args, 1, state->keywords_version);
    if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return capsule;
    }
    PyErr_Clear();
    return PyObject_VectorcallMethod(state->str___dlpack__, args, 1, NULL);
}

/* (device_type, device_id) as the producer reports it, and whether we can read there. */
static int
check_device(md_state *state, PyObject *producer)
{
    PyObject *pair = PyObject_CallMethodNoArgs(producer, state->str___dlpack_device__);
    int64_t device[2];
    int count;
    if (pair == NULL) {
        return -1;
    }
    int result = args_int64s("from_dlpack", "__dlpack_device__()", pair, device, 2, &count);
    if (result == 0 && (count != 2 || (device[0] != kDLMetal && device[0] != kDLCPU))) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: %.100s reports device %R; only Metal (8) and the CPU (1) can be "
                     "read.  Copy it to the CPU there first.",
                     Py_TYPE(producer)->tp_name, pair);
        result = -1;
    }
    Py_DECREF(pair);
    return result;
}

static PyObject *
refuse_producer(PyObject *producer)
{
    return PyErr_Format(PyExc_AttributeError,
                        "from_dlpack: %.100s has no __dlpack__ and __dlpack_device__; use asarray() "
                        "for lists, scalars and objects with the buffer protocol.",
                        Py_TYPE(producer)->tp_name);
}

/* One of our own: no capsule in between. */
static PyObject *
import_array(PyObject *op, const import_request *request)
{
    strided_layout layout;
    foreign_tensor nobody = {.flags = 0};
    array_get_layout(array_cast(op), &layout);
    return finish_metal(array_view(array_cast(op), &layout), &nobody, request);
}

static void
release_capsule(PyObject *capsule)
{
    /* Its destructor can run code of the producer's; our exception must survive it. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF(capsule);
    PyErr_Restore(type, value, traceback);
}

PyObject *
dlpack_import(md_state *state, PyObject *producer, const import_request *request)
{
    owners_drain(state);
    if (Py_IS_TYPE(producer, state->array_type)) {
        return import_array(producer, request);
    }
    if (PyCapsule_CheckExact(producer)) {
        return import_capsule(state, producer, "a capsule's producer", request);
    }
    if (!dlpack_is_producer(state, producer)) {
        return refuse_producer(producer);
    }
    if (check_device(state, producer) < 0) {
        return NULL;
    }
    PyObject *capsule = call_dlpack(state, producer, request->copy);
    if (capsule == NULL) {
        return NULL;
    }
    PyObject *array = import_capsule(state, capsule, Py_TYPE(producer)->tp_name, request);
    release_capsule(capsule);
    return array;
}

/* ---- from_dlpack ---- */

static bool
is_cpu_name(PyObject *value)
{
    return value != NULL && PyUnicode_Check(value) &&
           PyUnicode_CompareWithASCIIString(value, "cpu") == 0;
}

PyDoc_STRVAR(from_dlpack_doc,
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
             "    True: always.  False: never.  None: where the memory cannot be shared.\n"
             "stream : optional\n"
             "    None, or -1 for no synchronisation.\n\n"
             "Returns\n-------\n"
             "Array\n"
             "    Keeps the producer's memory alive as long as it, a view or an export of it lives.\n"
             "    Read-only where the producer says so.\n\n"
             "Raises\n------\n"
             "AttributeError\n    x has no __dlpack__ or __dlpack_device__.\n"
             "CopyRequiredError\n    copy=False, and the memory cannot be shared.\n"
             "BufferError\n"
             "    Another device, an element type that DLPack 1.3 has not, metadata that reaches\n"
             "    outside the buffer, a capsule that was consumed, another major version.\n\n"
             "Threads: the GIL is released while copying.  The producer's deleter is called exactly\n"
             "once, on a thread that holds the GIL.\n\n"
             "Source: array API standard 2025.12, from_dlpack; dlpack.h 1.3.");

static PyObject *
core_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "from_dlpack", 1, 1, 1, {"x", "device", "copy", "stream", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[4];
    import_request request = {0};
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        dlpack_check_stream("from_dlpack", values[3]) < 0 ||
        args_tristate("from_dlpack", "copy", values[2], &request.copy) < 0) {
        return NULL;
    }
    bool wants_host = is_cpu_name(values[1]);
    if (!wants_host && values[1] != NULL && values[1] != Py_None) {
        request.device = device_convert(state, "from_dlpack", values[1]);
        if (request.device == NULL) {
            return NULL;
        }
    }
    PyObject *array = dlpack_import(state, values[0], &request);
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
