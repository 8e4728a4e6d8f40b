/* foreign_tensor.c: see foreign_tensor.h.
 *
 * Calls:   the table of the producer's type, found by foreign_types.h; else the producer's
 *          __dlpack_device__ and __dlpack__; dlpack_check.h.
 * Source:  array API standard 2025.12 from_dlpack; dlpack.h 1.3.
 */
#include "exchange/foreign_tensor.h"

#include "array/array_numpy.h"
#include "exchange/foreign_types.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"

/* ---- letting go ---- */

void
foreign_let_go(foreign_tensor *self)
{
    if (self->managed != NULL && self->is_ours) {
        owners_delete_tensor(self->managed, self->is_versioned);
    }
    if (self->capsule != NULL) {
        owners_release_object(self->capsule);
    }
    if (self->moment != NULL) {
        owners_release_object(self->moment);
    }
    if (self->keeper != NULL) {
        owners_release_object(self->keeper);
    }
    self->managed = self->capsule = self->moment = self->keeper = NULL;
}

/* SPEC import-once */
int
foreign_take(foreign_tensor *self)
{
    self->is_ours = true;
    if (self->capsule == NULL) {
        return 0;
    }
    return PyCapsule_SetName(self->capsule,
                             self->is_versioned ? CAPSULE_VERSIONED_USED : CAPSULE_LEGACY_USED);
}

/* ---- opening ---- */

/* All but `facts`, a kilobyte, which the check fills. */
static void
start_with(foreign_tensor *out, const char *maker)
{
    memset(out, 0, offsetof(foreign_tensor, facts));
    out->maker = maker;
}

static void
read_versioned(DLManagedTensorVersioned *managed, foreign_tensor *out)
{
    out->managed = managed;
    out->is_versioned = true;
    out->version = managed->version;
    if (managed->version.major == DLPACK_MAJOR_VERSION) {
        out->flags = managed->flags;
        out->tensor = &managed->dl_tensor;
    }
}

void
foreign_open_managed(DLManagedTensorVersioned *managed, const char *maker, foreign_tensor *out)
{
    start_with(out, maker);
    read_versioned(managed, out);
    out->is_ours = true;
}

static int
refuse_capsule(const char *function, PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && strncmp(name, "used_dltensor", 13) == 0) {
        return errors_raise(PyExc_BufferError,
                            "%s: the capsule was already consumed; a capsule can be consumed "
                            "once; ask the producer for another.",
                            function);
    }
    return errors_raise(PyExc_BufferError,
                        "%s: a capsule named '%.100s' is not a DLPack tensor ('dltensor' or "
                        "'dltensor_versioned').",
                        function, name == NULL ? "" : name);
}

/* `out` owns the capsule, also if it is refused. */
/* SPEC import-flavours, import-once */
static int
read_capsule(const char *function, PyObject *capsule, foreign_tensor *out)
{
    out->capsule = capsule;
    if (!PyCapsule_CheckExact(capsule)) {
        return errors_raise(PyExc_TypeError,
                            "%s: __dlpack__ of %s returned %.100s instead of a capsule.",
                            function, out->maker, Py_TYPE(capsule)->tp_name);
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_VERSIONED)) {
        read_versioned(PyCapsule_GetPointer(capsule, CAPSULE_VERSIONED), out);
        return 0;
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_LEGACY)) {
        out->managed = PyCapsule_GetPointer(capsule, CAPSULE_LEGACY);
        out->tensor = &((DLManagedTensor *)out->managed)->dl_tensor;
        return 0;
    }
    return refuse_capsule(function, capsule);
}

/* As read_capsule, of what may be NULL with an exception; a failure leaves nothing open. */
static int
read_answer(const char *function, PyObject *capsule, foreign_tensor *out)
{
    int result = capsule == NULL ? -1 : read_capsule(function, capsule, out);
    if (result < 0) {
        foreign_close(out);
    }
    return result;
}

int
foreign_open_answer(const char *function, PyObject *capsule, const char *maker,
                    foreign_tensor *out)
{
    start_with(out, maker);
    return read_answer(function, capsule, out);
}

/* ---- asking by __dlpack__ ---- */

/* Call __dlpack__ with fewer and fewer keywords: a producer raises TypeError for one that it
 * does not know. */
/* SPEC import-old-producers */
static PyObject *
call_dlpack(md_state *state, PyObject *producer, int copy, bool is_told_not_to_wait)
{
    PyObject *copy_value = copy == 1 ? Py_True : Py_False;
    PyObject *ordered[] = {producer, state->max_version, state->minus_one, copy_value};
    PyObject *args[] = {producer, state->max_version, copy_value};
    const struct {
        bool is_asked;
        PyObject *const *args;
        PyObject *names;
    } ways[] = {
        {is_told_not_to_wait, ordered,
         copy >= 0 ? state->keywords_stream_copy : state->keywords_stream},
        {copy >= 0, args, state->keywords_copy},
        {true, args, state->keywords_version},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (!ways[i].is_asked) {
            continue;
        }
        PyObject *capsule =
            PyObject_VectorcallMethod(state->str___dlpack__, ways[i].args, 1, ways[i].names);
        if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) {
            return capsule;
        }
        PyErr_Clear();
    }
    return PyObject_VectorcallMethod(state->str___dlpack__, args, 1, NULL);
}

/* The device that the producer reports.  -1 with an exception, also for devices that we cannot read. */
/* SPEC import-other-device */
static int
read_device(md_state *state, const char *function, PyObject *producer, int64_t device[2])
{
    PyObject *pair = PyObject_CallMethodNoArgs(producer, state->str___dlpack_device__);
    int count;
    if (pair == NULL) {
        return -1;
    }
    /* Paddle reports (1, None).  Only the type counts here: the tensor has its device's number. */
    if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 &&
        PyTuple_GET_ITEM(pair, 1) == Py_None) {
        Py_SETREF(pair, Py_BuildValue("(Oi)", PyTuple_GET_ITEM(pair, 0), 0));
    }
    int result = pair == NULL
                     ? -1
                     : args_int64s(function, "__dlpack_device__()", pair, device, 2, &count);
    if (result == 0 && (count != 2 || (device[0] != kDLMetal && device[0] != kDLCPU))) {
        PyErr_Format(PyExc_BufferError,
                     "%s: %.100s reports device %R; only Metal (8) and the CPU (1) can be "
                     "read.  Copy it to the CPU there first.",
                     function, Py_TYPE(producer)->tp_name, pair);
        result = -1;
    }
    Py_XDECREF(pair);
    return result;
}

/* By the reported device we have decided whether to wait, and who copies.  A producer that reports 0
 * may mean the only one, or say nothing of it.  On failure the tensor is closed. */
/* SPEC import-device-agrees */
static int
compare_devices(const char *function, const int64_t reported[2], foreign_tensor *self)
{
    DLDevice device = self->tensor == NULL ? (DLDevice){0} : self->tensor->device;
    if (self->tensor == NULL /* of another major version */ ||
        (device.device_type == reported[0] &&
         (device.device_id == reported[1] || reported[1] == 0))) {
        return 0;
    }
    (void)errors_raise(
        PyExc_BufferError,
        "%s: __dlpack_device__() of %s reports device (%lld, %lld), but its tensor "
        "is on device (%d, %d); they must be the same.",
        function, self->maker, (long long)reported[0], (long long)reported[1],
        (int)device.device_type, (int)device.device_id);
    foreign_close(self);
    return -1;
}

/* SPEC import-errors */
static int
open_method(md_state *state, const char *function, PyObject *producer,
            const import_request *request, foreign_tensor *out)
{
    int copy = 0;
    bool is_told_not_to_wait = false;
    int64_t device[2];
    if (request != NULL) {
        if (read_device(state, function, producer, device) < 0 ||
            (device[0] == kDLMetal && !request->order.is_ordered &&
             foreign_wait(state, producer, &out->moment) < 0)) {
            return -1;
        }
        /* We copy CPU memory into Metal memory; the producer's own copy would be a second
         * one. */
        copy = request->copy == 1 && device[0] == kDLCPU ? -1 : request->copy;
        /* A producer with __metal_stream__ says when its work is finished, and need not wait. */
        is_told_not_to_wait = out->moment == producer;
        out->is_honest = device[0] == kDLCPU;
    }
    PyObject *capsule = call_dlpack(state, producer, copy, is_told_not_to_wait);
    out->maker = Py_TYPE(producer)->tp_name; /* only now: its code can have renamed its type */
    if (capsule == NULL) {
        array_numpy_explain_refusal(function, producer);
    }
    else if (out->is_honest) {
        out->is_honest = array_numpy_is_honest(producer);
    }
    return read_answer(function, capsule, out) < 0 ||
                   (request != NULL && compare_devices(function, device, out) < 0)
               ? -1
               : 0;
}

/* ---- asking by the exchange table ---- */

/* 0: it has __dlpack__.  -1 with AttributeError. */
/* SPEC import-no-dlpack */
static int
require_method(md_state *state, const char *function, PyObject *op)
{
    int speaks = foreign_speaks(state, op);
    if (speaks == 0) {
        PyErr_Format(PyExc_AttributeError,
                     "%s: %.100s has no __dlpack__ and __dlpack_device__; use asarray() for "
                     "lists, scalars and objects with the buffer protocol.",
                     function, Py_TYPE(op)->tp_name);
    }
    return speaks == 1 ? 0 : -1;
}

/* The table's exception is set.  0: it is cleared, as __dlpack__ can be called, which explains a
 * refusal in the framework's own words, where the table gives a C++ traceback and another class
 * than BufferError.  -1 with an exception. */
/* SPEC exchange-as-method */
static int
leave_to_method(md_state *state, PyObject *op)
{
    if (!errors_is_refusal()) {
        return -1;
    }
    PyObject *refusal = errors_take();
    int speaks = foreign_speaks(state, op);
    if (speaks == 0) {
        errors_restore(refusal);
        return -1;
    }
    Py_DECREF(refusal);
    return speaks == 1 ? 0 : -1;
}

/* Call the table's owning function.  1: `*out` is the caller's.  0: __dlpack__ may say why not.
 * -1 with an exception. */
static int
make_tensor(md_state *state, const char *function, const DLPackExchangeAPI *table, PyObject *op,
            DLManagedTensorVersioned **out)
{
    if (table->managed_tensor_from_py_object_no_sync(op, out) == 0 && *out != NULL) {
        return 1;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "%s: %.100s returned no tensor and no error.", function,
                     Py_TYPE(op)->tp_name);
    }
    return leave_to_method(state, op);
}

/* A tensor from the table of the type of `op`.  1: `*out` is the caller's, and so are `*moment`, of
 * foreign_wait if a Metal tensor `must_wait`, and `*keeper`, of foreign_examine_made.  0: call
 * __dlpack__ instead (there is no table; torch's __dlpack__ refuses this tensor; the table refused,
 * and __dlpack__ can say why).  -1 with AttributeError (there is neither), or what the table's
 * function, torch or the wait raised. */
/* SPEC exchange-foreign */
static int
ask_table(md_state *state, const char *function, PyObject *op, bool must_wait,
          DLManagedTensorVersioned **out, PyObject **moment, PyObject **keeper)
{
    *out = NULL;
    *moment = *keeper = NULL;
    const foreign_type *found = foreign_type_of(state, Py_TYPE(op));
    if (found == NULL || found->table == NULL) {
        return found == NULL ? -1 : require_method(state, function, op);
    }
    must_wait &= foreign_has_work(found);
    int is_made = make_tensor(state, function, found->table, op, out);
    if (is_made != 1 || (*out)->version.major != DLPACK_MAJOR_VERSION) {
        return is_made;
    }
    const DLTensor *tensor = &(*out)->dl_tensor;
    int is_good = foreign_examine_made(state, op, tensor, keeper);
    /* a table never synchronises */
    if (is_good == 1 && must_wait && tensor->device.device_type == kDLMetal) {
        is_good = foreign_wait(state, op, moment) < 0 ? -1 : 1;
    }
    if (is_good != 1) {
        owners_delete_tensor(*out, true);
        Py_CLEAR(*keeper);
    }
    return is_good;
}

/* ---- asking ---- */

int
foreign_open(md_state *state, const char *function, PyObject *producer,
             const import_request *request, foreign_tensor *out)
{
    if (PyCapsule_CheckExact(producer)) {
        return foreign_open_answer(function, Py_NewRef(producer), "a capsule's producer", out);
    }
    DLManagedTensorVersioned *managed;
    PyObject *moment, *keeper;
    bool must_wait = request != NULL && !request->order.is_ordered;
    int is_made = ask_table(state, function, producer, must_wait, &managed, &moment, &keeper);
    if (is_made == 1) {
        foreign_open_managed(managed, Py_TYPE(producer)->tp_name, out);
        out->moment = moment;
        out->keeper = keeper;
        return 0;
    }
    start_with(out, NULL);
    if (is_made < 0 || open_method(state, function, producer, request, out) < 0) {
        return -1;
    }
    int result = foreign_examine_memory(state, producer, out->tensor, &out->keeper);
    out->maker = Py_TYPE(producer)->tp_name; /* that can run its code too */
    if (result < 0) {
        foreign_close(out);
    }
    return result;
}

/* ---- checking ---- */

int
foreign_refuse(const char *function, const foreign_tensor *self, const dlpack_fault *fault)
{
    return errors_raise(PyExc_BufferError, "%s: %s; %s made the tensor.", function,
                        dlpack_fault_text(fault).text, self->maker);
}

/* SPEC import-major, import-minor, import-untouched, import-other-device */
bool
foreign_check(foreign_tensor *self, dlpack_fault *fault)
{
    const DLTensor *tensor = self->tensor;
    if (tensor == NULL) {
        return dlpack_fail(fault, DLPACK_FAULT_MAJOR, self->version.major, self->version.minor,
                           DLPACK_MAJOR_VERSION);
    }
    bool is_padded = (self->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
    if (!dlpack_check(tensor, is_padded, &self->facts, fault)) {
        return false;
    }
    DLDeviceType type = tensor->device.device_type;
    if (type != kDLMetal && type != kDLCPU) {
        return dlpack_fail(fault, DLPACK_FAULT_DEVICE, (int32_t)type, tensor->device.device_id,
                           0);
    }
    if (self->facts.nitems == 0) {
        return true; /* the address is not looked at */
    }
    return type == kDLCPU ? dlpack_check_address(tensor, &self->facts, fault)
                          : dlpack_check_offset(tensor, &self->facts, fault);
}

/* SPEC import-handle, import-device-id, import-failing-half */
bool
foreign_check_buffer(const foreign_tensor *self, const metal_storage *known,
                     const device_record **device, dlpack_fault *fault)
{
    const DLTensor *tensor = self->tensor;
    int32_t id = tensor->device.device_id;
    if (known == NULL && !bridge_handle_is_buffer(tensor->data)) {
        return dlpack_fail(fault, DLPACK_FAULT_HANDLE, (int64_t)(uintptr_t)tensor->data, 0, 0);
    }
    bridge_buffer *handle = tensor->data;
    uint64_t nbytes = known != NULL ? known->nbytes : bridge_buffer_nbytes(handle);
    if (!dlpack_check_bounds(tensor, &self->facts, nbytes, fault)) {
        return false;
    }
    *device = known != NULL ? known->device : devices_find(bridge_buffer_device(handle));
    return (*device != NULL && (id == 0 || id == (*device)->index)) ||
           dlpack_fail(fault, DLPACK_FAULT_DEVICE_ID, id, 0, 0);
}
