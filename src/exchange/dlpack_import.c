/* dlpack_import.c: see dlpack_import.h.
 *
 * Owns:    the rules of which tensor is taken, shared, copied or refused.
 * Calls:   dlpack_check.h before anything is touched; storage.h, owners.h to keep it.
 * Source:  array API standard 2025.12 from_dlpack; dlpack.h 1.3.
 */
#include "exchange/dlpack_import.h"

#include "array/array_sides.h"
#include "exchange/capsule_names.h"
#include "exchange/dlpack_check.h"
#include "exchange/host_memory.h"
#include "metal/handles.h"
#include "metal/managed_tensor.h"
#include "metal/readonly.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/stream_protocol.h"
#include "streams/wait_rule.h"

/* A tensor inside a capsule. */
typedef struct foreign_tensor {
    PyObject *capsule;      /* borrowed; NULL where the tensor came without one and is ours */
    const char *maker;      /* the producer's type, for messages; borrowed */
    void *managed;          /* ours to delete once from take_tensor on */
    const DLTensor *tensor; /* within `managed` */
    uint64_t flags;         /* 0 for a legacy tensor */
    bool is_versioned;
    bool is_taken;
    dlpack_facts facts; /* once checked */
} foreign_tensor;

/* All but `facts`, a kilobyte, which the check fills. */
static void
start_with(foreign_tensor *out, PyObject *capsule, const char *maker)
{
    out->capsule = capsule;
    out->maker = maker;
    out->managed = NULL;
    out->tensor = NULL;
    out->flags = 0;
    out->is_versioned = false;
    out->is_taken = false;
}

static PyObject *
refuse(const foreign_tensor *foreign, const dlpack_fault *fault)
{
    char text[LAYOUT_TEXT_MAX];
    dlpack_write_fault(fault, text);
    return PyErr_Format(PyExc_BufferError, "from_dlpack: %s, in the tensor that %s made.", text,
                        foreign->maker);
}

/* SPEC import-deleter-exception */
void
dlpack_delete_foreign(void *managed, bool is_versioned)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    managed_delete(managed, is_versioned);
    PyErr_Restore(type, value, traceback);
}

/* ---- the capsule ---- */

/* Take the tensor, which is ours to delete from here on.  Rename the capsule, so that its
 * destructor and later consumers leave the tensor alone. */
/* SPEC import-once */
static int
take_tensor(foreign_tensor *foreign)
{
    foreign->is_taken = true;
    if (foreign->capsule == NULL) {
        return 0;
    }
    const char *used = foreign->is_versioned ? CAPSULE_VERSIONED_USED : CAPSULE_LEGACY_USED;
    return PyCapsule_SetName(foreign->capsule, used);
}

/* SPEC import-major, import-minor */
static int
open_versioned(DLManagedTensorVersioned *managed, foreign_tensor *foreign)
{
    foreign->is_versioned = true;
    foreign->managed = managed;
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
        /* SPEC dlpack.h DLManagedTensorVersioned: call the deleter, touch nothing else. */
        uint32_t major = managed->version.major, minor = managed->version.minor;
        if (take_tensor(foreign) == 0) {
            dlpack_delete_foreign(managed, true);
            PyErr_Format(
                PyExc_BufferError,
                "from_dlpack: %s made a tensor of DLPack %u.%u; only major version %d is "
                "supported.",
                foreign->maker, major, minor, DLPACK_MAJOR_VERSION);
        }
        return -1;
    }
    foreign->flags = managed->flags;
    foreign->tensor = &managed->dl_tensor;
    return 0;
}

/* SPEC import-flavours, import-once */
static int
open_capsule(PyObject *capsule, const char *maker, foreign_tensor *out)
{
    start_with(out, capsule, maker);
    if (!PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError,
                     "from_dlpack: __dlpack__ of %s returned %.100s instead of a capsule.",
                     maker, Py_TYPE(capsule)->tp_name);
        return -1;
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_VERSIONED)) {
        return open_versioned(PyCapsule_GetPointer(capsule, CAPSULE_VERSIONED), out);
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_LEGACY)) {
        out->managed = PyCapsule_GetPointer(capsule, CAPSULE_LEGACY);
        out->tensor = &((DLManagedTensor *)out->managed)->dl_tensor;
        return 0;
    }
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && strncmp(name, "used_dltensor", 13) == 0) {
        PyErr_SetString(PyExc_BufferError,
                        "from_dlpack: the capsule was already consumed; a capsule can be "
                        "consumed once; ask the producer for another.");
        return -1;
    }
    PyErr_Format(PyExc_BufferError,
                 "from_dlpack: a capsule named '%.100s' is not a DLPack tensor ('dltensor' or "
                 "'dltensor_versioned').",
                 name == NULL ? "" : name);
    return -1;
}

/* ---- memory of the CPU ---- */

/* A kDLCPU tensor: the tensor itself is the owner. */
/* SPEC import-readonly, import-copy-false */
static PyObject *
import_cpu(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    const DLTensor *tensor = foreign->tensor;
    const device_record *device = import_request_device(state, "from_dlpack", request);
    dlpack_fault fault;
    if (device == NULL) {
        return NULL;
    }
    if (!dlpack_check_address(tensor, &foreign->facts, &fault)) {
        return refuse(foreign, &fault);
    }
    if (take_tensor(foreign) < 0) {
        return NULL;
    }
    host_items items = {(char *)tensor->data + tensor->byte_offset,
                        &foreign->facts.layout,
                        tensor->dtype,
                        (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0,
                        foreign->facts.is_padded,
                        request->is_honest};
    if (request->copy != 1) {
        char reason[HOST_REASON_MAX];
        storage_owner record = owners_of_tensor(state, foreign->managed, foreign->is_versioned);
        PyObject *array = host_memory_share(state, &items, &record, device, reason);
        if (array != NULL || PyErr_Occurred()) {
            return array;
        }
        if (request->copy == 0) {
            dlpack_delete_foreign(foreign->managed, foreign->is_versioned);
            return host_memory_refuse(state, "from_dlpack", reason);
        }
    }
    PyObject *copy = host_memory_copy(state, "from_dlpack", &items, device);
    dlpack_delete_foreign(foreign->managed, foreign->is_versioned);
    return copy;
}

/* ---- memory of Metal ---- */

/* SPEC import-device-id */
static int
check_device_id(const foreign_tensor *foreign, const device_record *device)
{
    int32_t id = foreign->tensor->device.device_id;
    if (device == NULL || (id != 0 && id != device->index)) {
        PyErr_Format(
            PyExc_BufferError,
            "from_dlpack: the tensor that %s made names device (8, %d), but its MTLBuffer "
            "belongs to another device.",
            foreign->maker, (int)id);
        return -1;
    }
    return 0;
}

/* Check the handle of a kDLMetal tensor and return its device.  NULL with BufferError. */
/* SPEC import-handle */
static const device_record *
check_handle(foreign_tensor *foreign)
{
    const DLTensor *tensor = foreign->tensor;
    dlpack_fault fault;
    if (!bridge_handle_is_buffer(tensor->data)) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: data (%p) of the kDLMetal tensor that %s made is not an "
                     "id<MTLBuffer>; a host pointer belongs in a kDLCPU tensor.",
                     tensor->data, foreign->maker);
        return NULL;
    }
    bridge_buffer *handle = tensor->data;
    if (!dlpack_check_bounds(tensor, &foreign->facts, bridge_buffer_nbytes(handle), &fault)) {
        (void)refuse(foreign, &fault);
        return NULL;
    }
    const device_record *device = devices_find(bridge_buffer_device(handle));
    return check_device_id(foreign, device) < 0 ? NULL : device;
}

/* The storage of a checked tensor, which becomes its owner.  NULL with an exception. */
/* SPEC import-keeps */
static metal_storage *
wrap_foreign(md_state *state, foreign_tensor *foreign)
{
    if (errors_check_fork(state, "from_dlpack") < 0) {
        return NULL;
    }
    const device_record *device = check_handle(foreign);
    if (device == NULL || take_tensor(foreign) < 0) {
        return NULL;
    }
    storage_owner owner = owners_of_tensor(state, foreign->managed, foreign->is_versioned);
    bridge_buffer *handle = foreign->tensor->data;
    metal_storage *storage;
    bridge_status status =
        storage_wrap_buffer(handle, device, bridge_buffer_nbytes(handle), &owner, &storage);
    if (status != BRIDGE_OK) { /* unreached: no test makes it fail here */
        dlpack_delete_foreign(foreign->managed, foreign->is_versioned);
        (void)errors_from_bridge(state, "from_dlpack", status, NULL, 0);
    }
    return storage;
}

/* As wrap_foreign, for a buffer of ours, whose handle needs no proof.  Steals `parent`. */
/* SPEC import-failing-half */
static metal_storage *
wrap_own(md_state *state, foreign_tensor *foreign, metal_storage *parent)
{
    dlpack_fault fault;
    metal_storage *storage = NULL;
    if (!dlpack_check_bounds(foreign->tensor, &foreign->facts, parent->nbytes, &fault)) {
        (void)refuse(foreign, &fault);
        goto error;
    }
    if (check_device_id(foreign, parent->device) < 0 || take_tensor(foreign) < 0) {
        goto error;
    }
    storage_owner owner = owners_of_tensor(state, foreign->managed, foreign->is_versioned);
    bridge_status status = storage_wrap_parent(parent, &owner, &storage);
    if (status == BRIDGE_OK) {
        return storage;
    }
    dlpack_delete_foreign(foreign->managed, foreign->is_versioned);
    (void)errors_from_bridge(state, "from_dlpack", status, NULL, 0);

error:
    storage_release(parent);
    return NULL;
}

/* SPEC import-readonly */
static PyObject *
import_metal(md_state *state, foreign_tensor *foreign)
{
    dlpack_fault fault;
    if (!dlpack_check_offset(foreign->tensor, &foreign->facts, &fault)) {
        return refuse(foreign, &fault);
    }
    metal_storage *parent = handles_find(foreign->tensor->data);
    metal_storage *storage =
        parent != NULL ? wrap_own(state, foreign, parent) : wrap_foreign(state, foreign);
    if (storage == NULL) {
        return NULL;
    }
    const DLTensor *tensor = foreign->tensor;
    /* The flag is that of this tensor; consumers drop it, and the memory stays what it is. */
    bool is_readonly = (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    storage->is_readonly |= is_readonly || readonly_knows_handle(storage->handle);
    return array_over_storage(state, storage, (int64_t)tensor->byte_offset,
                              &foreign->facts.layout, tensor->dtype, is_readonly,
                              foreign->facts.is_padded);
}

/* ---- any capsule ---- */

/* Make an Array of no bytes for a tensor without items, whose `data` is not looked at.  It has
 * the tensor's strides and flags, unless a copy is asked for. */
/* SPEC import-empty, import-readonly */
static PyObject *
import_empty(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    const device_record *device = import_request_device(state, "from_dlpack", request);
    if (device == NULL || take_tensor(foreign) < 0) {
        return NULL;
    }
    bool is_readonly = (foreign->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    host_items nothing = {NULL,        &foreign->facts.layout,   foreign->tensor->dtype,
                          is_readonly, foreign->facts.is_padded, true};
    PyObject *array =
        (request->copy == 1 ? host_memory_copy : host_memory_empty)(state, "from_dlpack",
                                                                    &nothing, device);
    dlpack_delete_foreign(foreign->managed, foreign->is_versioned);
    return array;
}

/* ---- the rest of what was asked ---- */

/* Order GPU work; copy to another device, or where the producer did not make the copy that was
 * asked for.  Steals `op`, which may be NULL. */
/* SPEC import-copy-true, import-copy-false */
static PyObject *
finish_metal(md_state *state, PyObject *op, uint64_t flags, const import_request *request)
{
    if (op == NULL) {
        return NULL;
    }
    ArrayObject *array = array_cast(op);
    metal_storage *storage = array_storage(array);
    int result = request->moment == NULL
                     ? wait_rule_for_gpu(state, "from_dlpack", storage, &request->order)
                     : stream_protocol_order(state, "from_dlpack", &request->order, storage,
                                             request->moment);
    if (result < 0) {
        Py_DECREF(op);
        return NULL;
    }
    bool is_elsewhere = request->device != NULL && request->device != storage->device;
    bool is_copied = (flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
    if (!is_elsewhere && (request->copy != 1 || is_copied)) {
        return op;
    }
    PyObject *copy;
    if (!is_elsewhere) { /* the producer does not take `copy`, or ignores it */
        copy = array_copied(array, 'C', storage->mode);
    }
    else if (request->copy != 0) {
        array_creation what = array_like(array);
        what.device = request->device;
        copy = array_copied_as("from_dlpack", array, &what, NULL);
    }
    else {
        /* unreached: no test makes it fail here */
        copy = errors_copy_required(
            state,
            "from_dlpack: the data is on metal:%d and device asks for "
            "metal:%d; a copy is needed and copy=False forbids it; pass copy=None.",
            storage->device->index, request->device->index);
    }
    Py_DECREF(op);
    return copy;
}

PyObject *
dlpack_import_array(PyObject *op, const import_request *request)
{
    return finish_metal(state_of(op), array_alias(array_cast(op)), 0, request);
}

/* ---- any tensor ---- */

/* SPEC import-untouched, import-other-device */
static PyObject *
import_tensor(md_state *state, foreign_tensor *foreign, const import_request *request)
{
    dlpack_fault fault;
    DLDevice device = foreign->tensor->device;
    if (device.device_type != kDLMetal && device.device_type != kDLCPU) {
        return PyErr_Format(
            PyExc_BufferError,
            "from_dlpack: the tensor that %s made is on device (%d, %d); only Metal "
            "(8) and the CPU (1) can be read.  Copy it to the CPU there first.",
            foreign->maker, (int)device.device_type, (int)device.device_id);
    }
    bool is_padded = (foreign->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
    if (!dlpack_check(foreign->tensor, is_padded, &foreign->facts, &fault)) {
        return refuse(foreign, &fault);
    }
    if (foreign->facts.nitems == 0) {
        return import_empty(state, foreign, request);
    }
    if (device.device_type == kDLCPU) {
        return import_cpu(state, foreign, request);
    }
    return finish_metal(state, import_metal(state, foreign), foreign->flags, request);
}

PyObject *
dlpack_import_capsule(md_state *state, PyObject *capsule, const char *maker,
                      const import_request *request)
{
    foreign_tensor foreign;
    if (open_capsule(capsule, maker, &foreign) < 0) {
        return NULL;
    }
    return import_tensor(state, &foreign, request);
}

PyObject *
dlpack_import_managed(md_state *state, DLManagedTensorVersioned *managed, const char *maker,
                      const import_request *request)
{
    foreign_tensor foreign;
    start_with(&foreign, NULL, maker);
    if (open_versioned(managed, &foreign) < 0) {
        return NULL; /* another major version: deleted already */
    }
    PyObject *array = import_tensor(state, &foreign, request);
    if (!foreign.is_taken) {
        dlpack_delete_foreign(managed, true);
    }
    return array;
}
