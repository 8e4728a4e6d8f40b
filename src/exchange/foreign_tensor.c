/* foreign_tensor.c: see foreign_tensor.h.
 *
 * Calls:   foreign_types.h for what is known of the producer's type; its __dlpack_device__ and
 *          __dlpack__; dlpack_check.h.
 * Source:  array API standard 2025.12 from_dlpack; dlpack.h 1.3.
 */
#include "exchange/foreign_tensor.h"

#include "array/array_numpy.h"
#include "exchange/foreign_types.h"
#include "exchange/torch.h"
#include "metal/managed_tensor.h"
#include "python/args.h"
#include "python/attribute.h"

/* ---- letting go ---- */

/* SPEC import-deleter-exception */
void
foreign_delete(void *managed, bool is_versioned)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    managed_delete(managed, is_versioned);
    PyErr_Restore(type, value, traceback);
}

/* A capsule's destructor can run the producer's code; our exception must survive that. */
static void
release_object(PyObject *op)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF(op);
    PyErr_Restore(type, value, traceback);
}

void
foreign_let_go(foreign_tensor *self)
{
    if (self->managed != NULL && self->is_ours) {
        foreign_delete(self->managed, self->is_versioned);
    }
    if (self->capsule != NULL) {
        release_object(self->capsule);
    }
    if (self->moment != NULL) {
        release_object(self->moment);
    }
    self->managed = self->capsule = self->moment = NULL;
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
    out->capsule = NULL;
    out->maker = maker;
    out->managed = NULL;
    out->tensor = NULL;
    out->version = (DLPackVersion){0, 0};
    out->flags = 0;
    out->is_versioned = false;
    out->is_ours = false;
    out->is_honest = false;
    out->moment = NULL;
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
        PyErr_Format(
            PyExc_BufferError,
            "%s: the capsule was already consumed; a capsule can be consumed once; ask "
            "the producer for another.",
            function);
        return -1;
    }
    PyErr_Format(PyExc_BufferError,
                 "%s: a capsule named '%.100s' is not a DLPack tensor ('dltensor' or "
                 "'dltensor_versioned').",
                 function, name == NULL ? "" : name);
    return -1;
}

/* `out` owns the capsule, also if it is refused. */
/* SPEC import-flavours, import-once */
static int
read_capsule(const char *function, PyObject *capsule, foreign_tensor *out)
{
    out->capsule = capsule;
    if (!PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: __dlpack__ of %s returned %.100s instead of a capsule.", function,
                     out->maker, Py_TYPE(capsule)->tp_name);
        return -1;
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

int
foreign_speaks(md_state *state, PyObject *op)
{
    return PyCapsule_CheckExact(op)
               ? 1
               : attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
}

/* SPEC import-no-dlpack */
static int
refuse_producer(const char *function, PyObject *producer)
{
    PyErr_Format(PyExc_AttributeError,
                 "%s: %.100s has no __dlpack__ and __dlpack_device__; use asarray() for lists, "
                 "scalars and objects with the buffer protocol.",
                 function, Py_TYPE(producer)->tp_name);
    return -1;
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
read_device_type(md_state *state, const char *function, PyObject *producer)
{
    PyObject *pair = PyObject_CallMethodNoArgs(producer, state->str___dlpack_device__);
    int64_t device[2];
    int count;
    if (pair == NULL) {
        return -1;
    }
    int result = args_int64s(function, "__dlpack_device__()", pair, device, 2, &count);
    if (result == 0 && (count != 2 || (device[0] != kDLMetal && device[0] != kDLCPU))) {
        PyErr_Format(PyExc_BufferError,
                     "%s: %.100s reports device %R; only Metal (8) and the CPU (1) can be "
                     "read.  Copy it "
                     "to the CPU there first.",
                     function, Py_TYPE(producer)->tp_name, pair);
        result = -1;
    }
    Py_DECREF(pair);
    return result < 0 ? -1 : device[0];
}

/* SPEC import-errors */
static int
open_method(md_state *state, const char *function, PyObject *producer,
            const import_request *request, foreign_tensor *out)
{
    int copy = 0;
    bool is_told_not_to_wait = false;
    if (request != NULL) {
        int64_t device_type = read_device_type(state, function, producer);
        /* mutant survives (bound): never 0 */
        if (device_type < 0 || (device_type == kDLMetal && !request->order.is_ordered &&
                                foreign_synchronize(state, producer, &out->moment) < 0)) {
            return -1;
        }
        /* We copy CPU memory into Metal memory; the producer's own copy would be a second
         * one. */
        copy = request->copy == 1 && device_type == kDLCPU ? -1 : request->copy;
        /* A producer with __metal_stream__ says when its work is finished, and need not wait. */
        is_told_not_to_wait = out->moment == producer;
        out->is_honest = device_type == kDLCPU && array_numpy_is_honest(producer);
    }
    PyObject *capsule = call_dlpack(state, producer, copy, is_told_not_to_wait);
    /* mutant survives (condition always): it asks for the exception first */
    if (capsule == NULL) {
        array_numpy_explain_refusal(state, function, producer);
    }
    return read_answer(function, capsule, out);
}

/* ---- asking by the exchange table ---- */

/* Clear the table's exception if __dlpack__ can be called instead: that explains a refusal
 * in the framework's own words, where the table gives a C++ traceback and another class than
 * BufferError.  False: an exception is set. */
/* SPEC exchange-as-method */
static bool
leave_to_method(md_state *state, PyObject *op)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return false;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int is_there = attribute_exists((PyObject *)Py_TYPE(op), state->str___dlpack__);
    if (is_there == 0) {
        PyErr_Restore(type, value, traceback);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return is_there == 1;
}

/* Call the table's owning function.  0, or -1 with an exception. */
static int
make_tensor(const char *function, const DLPackExchangeAPI *table, PyObject *op,
            DLManagedTensorVersioned **out)
{
    if (table->managed_tensor_from_py_object_no_sync(op, out) == 0 && *out != NULL) {
        return 0;
    }
    *out = NULL;
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_BufferError, "%s: %.100s returned no tensor and no error.", function,
                     Py_TYPE(op)->tp_name);
    }
    return -1;
}

/* A tensor from the table of the type of `op`.  1: the caller owns `*out`.  0: call __dlpack__
 * instead (there is no table; torch's __dlpack__ refuses this tensor; the table refused, and there
 * is a __dlpack__ to say why).  -1 with the exception that the table's function raised. */
/* SPEC exchange-foreign */
static int
ask_table(md_state *state, const char *function, PyObject *op, DLManagedTensorVersioned **out)
{
    *out = NULL;
    const foreign_type *found = foreign_type_of(state, Py_TYPE(op));
    if (found == NULL) {
        return -1;
    }
    if (found->table == NULL) {
        return 0;
    }
    /* the calls below can replace what was found; the type keeps what it refers to */
    bool is_torchs = found->requires_grad != NULL;
    const struct PyGetSetDef *gradient = found->gradient;
    if (make_tensor(function, found->table, op, out) < 0) {
        return leave_to_method(state, op) ? 0 : -1;
    }
    if (!is_torchs || (*out)->version.major != DLPACK_MAJOR_VERSION) {
        return 1;
    }
    int is_good = torch_check_tensor(state, gradient, op, &(*out)->dl_tensor);
    if (is_good != 1) {
        foreign_delete(*out, true);
        *out = NULL;
    }
    return is_good;
}

/* ---- asking ---- */

int
foreign_open(md_state *state, const char *function, PyObject *producer,
             const import_request *request, foreign_tensor *out)
{
    DLManagedTensorVersioned *managed;
    if (PyCapsule_CheckExact(producer)) {
        start_with(out, "a capsule's producer");
        return read_answer(function, Py_NewRef(producer), out);
    }
    int is_made = ask_table(state, function, producer, &managed);
    start_with(out, Py_TYPE(producer)->tp_name);
    if (is_made == 0) {
        int speaks = foreign_speaks(state, producer);
        return speaks < 0    ? -1
               : speaks == 0 ? refuse_producer(function, producer)
                             : open_method(state, function, producer, request, out);
    }
    if (is_made < 0) {
        return -1;
    }
    read_versioned(managed, out);
    out->is_ours = true;
    /* a table never synchronises */
    bool is_metal = out->tensor != NULL && out->tensor->device.device_type == kDLMetal;
    if (request != NULL && is_metal && !request->order.is_ordered &&
        foreign_synchronize(state, producer, &out->moment) < 0) {
        foreign_close(out);
        return -1;
    }
    return 0;
}

/* ---- checking ---- */

int
foreign_refuse(const char *function, const foreign_tensor *self, const dlpack_fault *fault)
{
    char text[LAYOUT_TEXT_MAX];
    dlpack_write_fault(fault, text);
    PyErr_Format(PyExc_BufferError, "%s: %s; %s made the tensor.", function, text, self->maker);
    return -1;
}

static bool
has_fault(dlpack_fault *fault, dlpack_fault_code code, int64_t a, int64_t b, int64_t c)
{
    *fault = (dlpack_fault){code, a, b, c};
    return false;
}

/* SPEC import-major, import-minor, import-untouched, import-other-device */
bool
foreign_check(foreign_tensor *self, dlpack_fault *fault)
{
    const DLTensor *tensor = self->tensor;
    if (tensor == NULL) {
        return has_fault(fault, DLPACK_FAULT_MAJOR, self->version.major, self->version.minor,
                         DLPACK_MAJOR_VERSION);
    }
    bool is_padded = (self->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
    if (!dlpack_check(tensor, is_padded, &self->facts, fault)) {
        return false;
    }
    DLDeviceType type = tensor->device.device_type;
    if (type != kDLMetal && type != kDLCPU) {
        return has_fault(fault, DLPACK_FAULT_DEVICE, (int32_t)type, tensor->device.device_id,
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
        return has_fault(fault, DLPACK_FAULT_HANDLE, (int64_t)(uintptr_t)tensor->data, 0, 0);
    }
    bridge_buffer *handle = tensor->data;
    uint64_t nbytes = known != NULL ? known->nbytes : bridge_buffer_nbytes(handle);
    if (!dlpack_check_bounds(tensor, &self->facts, nbytes, fault)) {
        return false;
    }
    *device = known != NULL ? known->device : devices_find(bridge_buffer_device(handle));
    return (*device != NULL && (id == 0 || id == (*device)->index)) ||
           has_fault(fault, DLPACK_FAULT_DEVICE_ID, id, 0, 0);
}
