/* dlpack_export.c: see dlpack_export.h.
 *
 * Owns:    the rules of what a consumer gets: which struct, which flags, when a copy.
 * Calls:   managed_tensor.h for the tensor, array.h for copies.
 * Source:  array API standard 2025.12 __dlpack__; dlpack.h 1.3.
 */
#include "exchange/dlpack_export.h"

#include "array/array_map.h"
#include "array/array_methods.h"
#include "exchange/foreign_tensor.h"
#include "exchange/torch.h"
#include "metal/lookup.h"
#include "metal/managed_tensor.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/wait_rule.h"

/* ---- why a copy is needed ---- */

/* `*reason` is set where it is true: what most exports have none of. */
static bool
has_reason(dlpack_fault *reason, dlpack_fault_code code, int64_t a, int64_t b)
{
    *reason = (dlpack_fault){code, a, b, 0};
    return true;
}

/* torch ends the process on one, MLX refuses it. */
static bool
has_negative_stride(const ArrayObject *self, dlpack_fault *reason)
{
    for (int axis = 0; axis < self->ndim; axis++) {
        int64_t stride = array_strides(self)[axis];
        if (stride < 0 && array_shape(self)[axis] > 1) {
            return has_reason(reason, COPY_NEGATIVE, stride, axis);
        }
    }
    return false;
}

static bool
must_copy(const ArrayObject *self, DLDeviceType device, dlpack_fault *reason)
{
    strided_layout layout;
    if (has_negative_stride(self, reason)) {
        return true;
    }
    if (array_is_packed(self)) {
        array_get_layout(self, &layout);
        if (!layout_is_contiguous_c(&layout)) {
            return has_reason(reason, COPY_APART, 0, 0);
        }
    }
    if (device == kDLCPU) {
        return array_storage(self)->mode == BRIDGE_PRIVATE &&
               has_reason(reason, COPY_PRIVATE, 0, 0);
    }
    /* Most offsets are 0, and a division takes a twentieth of an export. */
    return self->byte_offset != 0 && self->byte_offset % dtype_itemsize(self->dtype) != 0 &&
           has_reason(reason, COPY_OFFSET, self->byte_offset, dtype_itemsize(self->dtype));
}

/* SPEC export-copy-none, export-offset-item, export-negative, export-subbyte,
 * export-private, export-readonly-legacy */
bool
dlpack_export_reason(const ArrayObject *self, DLDeviceType device, bool is_versioned,
                     dlpack_fault *reason)
{
    if (self->is_readonly && !is_versioned) {
        return has_reason(reason, REFUSED_READONLY, 0, 0);
    }
    /* without items there is no memory to hand out */
    if (self->nitems > 0 && must_copy(self, device, reason)) {
        return true;
    }
    return self->is_padded && !is_versioned && has_reason(reason, COPY_PADDED, 0, 0);
}

/* ---- filling the tensor ---- */

/* All but shape and strides. */
/* SPEC export-metal-data, export-cpu-data, export-device-id, export-empty,
 * export-dtypes */
static void
fill_tensor(const ArrayObject *self, DLDeviceType device, DLTensor *out)
{
    metal_storage *storage = array_storage(self);
    /* device_id 0 only: torch turns another number into "mps:1", which does not exist. */
    out->device = (DLDevice){device, 0};
    out->dtype = self->dtype;
    out->data = NULL;
    out->byte_offset = 0;
    if (self->nitems == 0) {
        return; /* SPEC dlpack.h DLTensor.data: NULL for a tensor of size 0 */
    }
    if (device == kDLCPU) {
        /* MLX adds byte_offset twice on the CPU: fold it into data. */
        out->data = storage->address + self->byte_offset;
    }
    else {
        out->data = storage->handle;
        out->byte_offset = (uint64_t)self->byte_offset;
    }
}

/* Make the bytes current where the consumer will read and write them. */
/* SPEC export-stream-none, export-cpu-waits */
static int
make_visible(ArrayObject *self, DLDeviceType device, const stream_order *order)
{
    metal_storage *storage = array_storage(self);
    PyObject *op = (PyObject *)self;
    if (device != kDLCPU) {
        bool is_free =
            self->nitems == 0 || order->is_ordered || tracking_is_quiet(storage->handle);
        if (!is_free && /* or the state need not be looked up */
            wait_rule_for_gpu(state_of(op), "Array.__dlpack__", storage, order) < 0) {
            return -1;
        }
        storage_publish(storage);
        return 0;
    }
    lookup_publish_readonly(storage);
    if (self->nitems == 0) {
        return 0;
    }
    touched_bytes bytes = array_watched_bytes(self);
    return wait_rule_for_cpu(op, "Array.__dlpack__", &bytes, !self->is_readonly);
}

/* SPEC export-strides-as-they-are, export-readonly, export-subbyte */
static void *
export_in_place(ArrayObject *self, const export_request *request, uint64_t flags)
{
    DLTensor *tensor;
    if (make_visible(self, request->device, &request->order) < 0) {
        return NULL;
    }
    if (self->is_readonly) {
        flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
    }
    if (self->is_padded) {
        flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
    }
    void *managed =
        managed_new(array_storage(self), self->ndim, request->is_versioned, flags, &tensor);
    if (managed == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    /* In both the strides follow the shape. */
    memcpy(tensor->shape, array_shape(self), 2 * (size_t)self->ndim * sizeof(int64_t));
    fill_tensor(self, request->device, tensor);
    return managed;
}

/* SPEC export-copy-true */
static void *
export_copy(ArrayObject *self, const export_request *request)
{
    array_creation what = array_like(self);
    what.mode = request->device == kDLCPU ? BRIDGE_SHARED : what.mode;
    /* A legacy tensor cannot say that it is padded: it gets packed items. */
    what.is_padded &= request->is_versioned;
    PyObject *copy = array_copied("Array.__dlpack__", self, &what, NULL);
    if (copy == NULL) {
        return NULL;
    }
    /* No caller can have ordered work on a copy that is made here: the CPU waits for it. */
    export_request of_copy = *request;
    of_copy.order.is_ordered = false;
    void *managed = export_in_place(array_cast(copy), &of_copy, DLPACK_FLAG_BITMASK_IS_COPIED);
    Py_DECREF(copy); /* the export holds the storage */
    return managed;
}

/* SPEC export-copy-false */
void *
dlpack_export(ArrayObject *self, const export_request *request)
{
    md_state *state = state_of((PyObject *)self);
    owners_drain(state);
    if (request->copy == 1) {
        return export_copy(self, request);
    }
    dlpack_fault reason;
    if (!dlpack_export_reason(self, request->device, request->is_versioned, &reason)) {
        return export_in_place(self, request, 0);
    }
    if (reason.code != REFUSED_READONLY && request->copy != 0) {
        timeline_because((unsigned)TIMELINE_FAULT + reason.code);
        return export_copy(self, request);
    }
    if (reason.code == REFUSED_READONLY) {
        return PyErr_Format(
            PyExc_BufferError,
            "Array.__dlpack__: %s; ask with max_version=(1, 0) or later, or with copy=True.",
            dlpack_fault_text(&reason).text);
    }
    return errors_copy_required(state,
                                "Array.__dlpack__: %s, so a copy is needed and copy=False "
                                "forbids it; pass copy=None, or export a.copy().",
                                dlpack_fault_text(&reason).text);
}

/* SPEC exchange-borrowed */
int
dlpack_export_borrowed(ArrayObject *self, DLTensor *out)
{
    dlpack_fault reason;
    if (dlpack_export_reason(self, kDLMetal, false, &reason)) {
        return errors_raise(
            PyExc_BufferError,
            "Array: %s, so its tensor cannot be borrowed; ask for an owned one.",
            dlpack_fault_text(&reason).text);
    }
    if (make_visible(self, kDLMetal, &(stream_order){0}) < 0) {
        return -1;
    }
    out->ndim = self->ndim;
    out->shape = (int64_t *)array_shape(self); /* the contract says: not to be written */
    out->strides = (int64_t *)array_strides(self);
    fill_tensor(self, kDLMetal, out);
    return 0;
}

/* ---- the capsule ---- */

static const char legacy_name[] = CAPSULE_LEGACY, versioned_name[] = CAPSULE_VERSIONED;

/* Does the capsule still have our name?  A consumer sets another when it takes the tensor.
 * The address usually tells; a consumer that gives the tensor back sets the text again. */
static bool
is_named(const char *name, const char *ours)
{
    return name == ours || (name != NULL && strcmp(name, ours) == 0);
}

/* SPEC export-dropped */
static void
end_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    bool is_versioned = name != legacy_name && is_named(name, versioned_name);
    if (is_versioned || is_named(name, legacy_name)) {
        managed_delete(PyCapsule_GetPointer(capsule, name), is_versioned);
    }
}

static PyObject *
wrap_in_capsule(void *managed, bool is_versioned)
{
    if (managed == NULL) {
        return NULL;
    }
    PyObject *capsule =
        PyCapsule_New(managed, is_versioned ? versioned_name : legacy_name, end_capsule);
    if (capsule == NULL) {
        managed_delete(managed, is_versioned);
    }
    return capsule;
}

/* ---- keywords ---- */

/* A pair of numbers: a tuple, or anything of length 2 whose items have __index__ (torch passes
 * IntEnum members). */
/* SPEC export-device-pair */
static int
convert_pair(const char *what, PyObject *value, int64_t *out)
{
    int count;
    if (args_int64s("Array.__dlpack__", what, value, out, 2, &count) < 0) {
        return -1;
    }
    if (count != 2) {
        return errors_raise(PyExc_TypeError,
                            "Array.__dlpack__: %s must be a pair of ints, not %R.", what,
                            value);
    }
    return 0;
}

/* SPEC export-device */
static int
convert_device(PyObject *value, DLDeviceType *device)
{
    int64_t pair[2];
    if (!args_is_given(value)) {
        return 0;
    }
    if (convert_pair("dl_device", value, pair) < 0) {
        return -1;
    }
    if ((pair[0] != kDLMetal && pair[0] != kDLCPU) || pair[1] != 0) {
        return errors_raise(PyExc_BufferError,
                            "Array.__dlpack__: dl_device (%lld, %lld) is neither Metal (8, 0) "
                            "nor the CPU (1, 0).",
                            (long long)pair[0], (long long)pair[1]);
    }
    *device = (DLDeviceType)pair[0];
    return 0;
}

/* A tuple of two ints, as nearly all consumers pass. */
static bool
is_plain_pair(PyObject *value)
{
    return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2 &&
           PyLong_CheckExact(PyTuple_GET_ITEM(value, 0)) &&
           PyLong_CheckExact(PyTuple_GET_ITEM(value, 1));
}

/* SPEC export-legacy, export-versioned */
static int
convert_version(PyObject *value, bool *is_versioned)
{
    int64_t pair[2];
    *is_versioned = false;
    if (!args_is_given(value)) {
        return 0; /* SPEC array API: no version means DLPack before 1.0 */
    }
    if (is_plain_pair(value)) { /* the minor version does not matter */
        int overflow;
        long major = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(value, 0), &overflow);
        *is_versioned = major >= 1 || overflow > 0;
        return 0;
    }
    if (convert_pair("max_version", value, pair) < 0) {
        return -1;
    }
    *is_versioned = pair[0] >= 1;
    return 0;
}

/* __dlpack__(max_version=...), as consumers of version 1 ask, whose compilers intern
 * the name. */
static bool
names_version_alone(ArrayObject *self, Py_ssize_t nargs, PyObject *kwnames)
{
    return nargs == 0 && PyTuple_GET_SIZE(kwnames) == 1 &&
           PyTuple_GET_ITEM(kwnames, 0) == state_of((PyObject *)self)->str_max_version;
}

/* SPEC export-keywords */
static PyObject *
export_as_asked(ArrayObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                DLDeviceType device)
{
    static const args_spec spec = {
        "__dlpack__", 0, 0, 0, {"stream", "max_version", "dl_device", "copy", NULL}};
    PyObject *values[4];
    export_request request = {.device = device, .copy = -1};
    if (nargs == 0 && kwnames == NULL) { /* what most consumers do */
        return wrap_in_capsule(dlpack_export(self, &request), false);
    }
    if (names_version_alone(self, nargs, kwnames)) {
        values[0] = values[2] = values[3] = NULL;
        values[1] = args[0];
    }
    else if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    md_state *state = state_of((PyObject *)self);
    if (convert_version(values[1], &request.is_versioned) < 0 ||
        convert_device(values[2], &request.device) < 0 ||
        (values[1] != NULL && request.device == kDLMetal && !state->torch_is_checked &&
         torch_check_asker(state) < 0) ||
        (values[3] != NULL &&
         args_tristate("Array.__dlpack__", "copy", values[3], &request.copy) < 0) ||
        (values[0] != NULL &&
         stream_convert_order(state, "Array.__dlpack__", values[0], &request.order) < 0)) {
        return NULL;
    }
    PyObject *capsule = wrap_in_capsule(dlpack_export(self, &request), request.is_versioned);
    if (request.order.stream != NULL) {
        stream_release(request.order.stream);
    }
    return capsule;
}

PyObject *
dlpack_export_call(ArrayObject *self, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, DLDeviceType device)
{
    PyObject *capsule = export_as_asked(self, args, nargs, kwnames, device);
    if (capsule == NULL) {
        refusal_note();
    }
    return capsule;
}

const char array_doc_dlpack[] =
    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "The array as a DLPack capsule, for another framework's from_dlpack.\n\n"
    "Parameters\n----------\n"
    "stream : int or Stream, optional\n"
    "    None: our pending GPU work on the buffer is complete on return.  -1: no waiting.  A\n"
    "    Stream, or the handle of its command queue: that queue waits on the GPU, the CPU\n"
    "    does not.  A CPU export always waits.\n"
    "max_version : tuple of int, optional\n"
    "    (1, 0) or later gives a 'dltensor_versioned' of DLPack 1.3; without it a legacy\n"
    "    'dltensor'.\n"
    "dl_device : tuple of int, optional\n"
    "    (8, 0), Metal, the default: `data` is the id<MTLBuffer>.  (1, 0), the CPU: `data` is\n"
    "    the address of element 0.\n"
    "copy : bool, optional\n"
    "    True: always copy.  False: never.  None: only if the memory cannot be shared as it\n"
    "    is.\n\n"
    "Returns\n-------\n"
    "capsule\n"
    "    Owns a reference to the buffer; freed by its consumer, or with the capsule.\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n"
    "    copy=False, and the storage is private (for the CPU), a stride is negative, or the\n"
    "    offset is not a multiple of the itemsize.\n"
    "BufferError\n"
    "    dl_device is another device; stream is an int that is not the handle of a known\n"
    "    queue; or the array is read-only and max_version is not given.\n"
    "TypeError\n    stream has a wrong type.\n"
    "MetalError\n    GPU work that was waited for has failed.\n\n"
    "Threads: the GIL is released while waiting.  The capsule's deleter needs no Python and\n"
    "runs on any thread.\n\n"
    "Source: array API standard 2025.12, array.__dlpack__; dlpack.h 1.3.";

PyObject *
array_method_dlpack(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return dlpack_export_call(array_cast(op), args, nargs, kwnames, kDLMetal);
}

const char array_doc_dlpack_device[] =
    "__dlpack_device__($self, /)\n--\n\n"
    "(8, 0): kDLMetal, the system's default device.\n\n"
    "Source: array API standard 2025.12, array.__dlpack_device__.";

PyObject *
array_method_dlpack_device(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("(ii)", kDLMetal, 0);
}
