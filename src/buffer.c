/* buffer.c: the Buffer type, one Python owner of one MTLBuffer.
 *
 * Owns:      one reference to a metal_storage, dropped by close() or with the object.
 * Calls:     storage.h, owners.h.  Nothing here knows of shapes, dtypes or DLPack.
 * Threads:   the GIL is held; it is released round Metal calls that allocate or wait.
 * Invariant: `storage` is set once, in buffer_from_storage, and cleared once, by close().
 */
#include "buffer.h"

#include <structmember.h>

#include "args.h"
#include "array.h"
#include "device.h"
#include "errors.h"
#include "handles.h"
#include "owners.h"
#include "storage_mode.h"
#include "waiting.h"

/* ---- making ---- */

PyObject *
buffer_from_storage(md_state *state, metal_storage *storage)
{
    BufferObject *self = PyObject_GC_New(BufferObject, state->buffer_type);
    if (self == NULL) {
        storage_release(storage);
        return NULL;
    }
    self->storage = storage;
    self->views = 0;
    self->weakrefs = NULL;
    if (owners_object(storage) != NULL) { /* without a Python owner it leads nowhere */
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

metal_storage *
buffer_allocate_storage(md_state *state, const char *function, const device_record *device,
                        size_t nbytes, bridge_storage mode)
{
    bridge_status status;
    metal_storage *storage = storage_reuse(device, nbytes, mode);
    if (storage != NULL) {
        return storage;
    }
    Py_BEGIN_ALLOW_THREADS
    status = storage_new(device, nbytes, mode, &storage);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state, function, status, NULL, nbytes);
        return NULL;
    }
    return storage;
}

static int
convert_size(const char *function, PyObject *value, int64_t *out)
{
    if (args_int64(function, "size", value, out) < 0) {
        return -1;
    }
    if (*out < 0) {
        PyErr_Format(PyExc_ValueError, "%s: size (%lld bytes) is negative.", function,
                     (long long)*out);
        return -1;
    }
    return 0;
}

static int
set_label(metal_storage *storage, PyObject *label)
{
    if (label == NULL || label == Py_None) {
        return 0;
    }
    if (!PyUnicode_Check(label)) {
        PyErr_Format(PyExc_TypeError, "Buffer: label must be a str or None, not %.100s.",
                     Py_TYPE(label)->tp_name);
        return -1;
    }
    const char *text = PyUnicode_AsUTF8(label);
    if (text == NULL) {
        return -1;
    }
    if (storage->handle != NULL) {
        bridge_buffer_set_label(storage->handle, text);
        storage->is_labelled = true;
    }
    return 0;
}

static PyObject *
buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const args_spec spec = {"Buffer", 0, 1, 1, {"size", "device", "storage", "label", NULL}};
    md_state *state = PyType_GetModuleState(type);
    PyObject *values[4];
    int64_t size;
    bridge_storage mode;
    if (args_parse_tuple(&spec, args, kwargs, values) < 0 ||
        convert_size("Buffer", values[0], &size) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state, "Buffer", values[1]);
    if (device == NULL || storage_mode_convert(state, "Buffer", values[2], device, &mode) < 0) {
        return NULL;
    }
    metal_storage *storage = buffer_allocate_storage(state, "Buffer", device, (size_t)size, mode);
    PyObject *op = storage == NULL ? NULL : buffer_from_storage(state, storage);
    if (op != NULL && set_label(buffer_cast(op)->storage, values[3]) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

/* ---- over an MTLBuffer of somebody else ---- */

static bridge_buffer *
convert_handle(PyObject *value)
{
    void *handle;
    if (args_handle("Buffer.from_handle", "id<MTLBuffer>", value, &handle) < 0) {
        return NULL;
    }
    if (!bridge_handle_is_buffer(handle)) {
        PyErr_Format(PyExc_ValueError,
                     "Buffer.from_handle: %p is not the address of an id<MTLBuffer>.", handle);
        return NULL;
    }
    return handle;
}

/* How many bytes may be used: our own MTLBuffers are longer than what was asked for. */
static size_t
usable_nbytes(bridge_buffer *handle)
{
    metal_storage *ours = handles_find(handle);
    size_t nbytes = ours != NULL ? ours->nbytes : bridge_buffer_nbytes(handle);
    storage_release(ours);
    return nbytes;
}

static PyObject *
wrap_handle(md_state *state, bridge_buffer *handle, size_t nbytes, PyObject *owner)
{
    const device_record *device = devices_find(bridge_buffer_device(handle));
    if (device == NULL) {
        PyErr_SetString(PyExc_ValueError, "Buffer.from_handle: the buffer's device is none of "
                                          "metal_dlpack.devices().");
        return NULL;
    }
    bool has_owner = owner != NULL && owner != Py_None;
    storage_owner record = {0};
    if (has_owner) {
        record = owners_of_object(state, owner);
    }
    metal_storage *storage;
    bridge_status status =
        storage_wrap_buffer(handle, device, nbytes, has_owner ? &record : NULL, &storage);
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, "Buffer.from_handle", status, NULL, nbytes);
    }
    Py_XINCREF(has_owner ? owner : NULL); /* the storage owns this reference */
    return buffer_from_storage(state, storage);
}

PyDoc_STRVAR(buffer_from_handle_doc,
             "from_handle($type, handle, size=None, *, owner=None)\n--\n\n"
             "Wrap an existing MTLBuffer, from PyObjC, a C library or another framework.\n\n"
             "Parameters\n----------\n"
             "handle : int\n"
             "    The id<MTLBuffer> itself, or an object of PyObjC for it; it is retained.\n"
             "size : int, optional\n"
             "    Bytes to use, from the start; default: the buffer's whole length.\n"
             "owner : object, optional\n"
             "    Kept alive until the Buffer is closed and the last export is gone.\n\n"
             "Returns\n-------\nBuffer\n\n"
             "Raises\n------\n"
             "ValueError\n"
             "    The handle is not an MTLBuffer of a known device, or size passes its end.\n\n"
             "Memory: no copy.  Threads: the GIL is held.");

static PyObject *
buffer_from_handle(PyObject *type, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Buffer.from_handle", 0, 2, 1, {"handle", "size", "owner", NULL}};
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *values[3];
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    bridge_buffer *handle = convert_handle(values[0]);
    if (handle == NULL) {
        return NULL;
    }
    size_t length = usable_nbytes(handle);
    int64_t size = (int64_t)length;
    if (values[1] != NULL && values[1] != Py_None &&
        convert_size("Buffer.from_handle", values[1], &size) < 0) {
        return NULL;
    }
    if ((uint64_t)size > length) {
        return PyErr_Format(PyExc_ValueError,
                            "Buffer.from_handle: size (%lld bytes) passes the end of the "
                            "MTLBuffer (%zu bytes).",
                            (long long)size, length);
    }
    return wrap_handle(state, handle, (size_t)size, values[2]);
}

/* ---- closing ---- */

PyDoc_STRVAR(buffer_close_doc,
             "close($self, /)\n--\n\n"
             "Give the memory back now.  Closing twice is allowed.\n\n"
             "Raises\n------\n"
             "BufferError\n"
             "    Arrays, memoryviews or DLPack exports still use it.");

static PyObject *
buffer_close(PyObject *op, PyObject *Py_UNUSED(unused))
{
    BufferObject *self = buffer_cast(op);
    if (self->storage == NULL) {
        Py_RETURN_NONE;
    }
    buffer_hold(self); /* GPU work keeps the storage until it is done: the last of it is waited for */
    int waited = waiting_for_storage(state_of(op), "Buffer.close", self->storage, true);
    buffer_unhold(self);
    if (waited < 0) {
        return NULL;
    }
    Py_ssize_t views = __atomic_load_n(&self->views, __ATOMIC_ACQUIRE);
    if (views > 0) {
        return PyErr_Format(PyExc_BufferError,
                            "Buffer.close: %zd arrays or memoryviews still use the buffer; delete "
                            "them first.",
                            views);
    }
    if (!storage_is_sole(self->storage)) {
        PyErr_SetString(PyExc_BufferError, "Buffer.close: a DLPack export of the buffer is still "
                                           "alive in another framework.");
        return NULL;
    }
    metal_storage *storage = self->storage;
    self->storage = NULL;
    storage_release(storage);
    Py_RETURN_NONE;
}

metal_storage *
buffer_open_storage(const char *function, BufferObject *self)
{
    if (self->storage == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: the Buffer is closed.", function);
    }
    return self->storage;
}

static PyMethodDef buffer_methods[] = {
    {"from_handle", MD_FASTCALL(buffer_from_handle) | METH_CLASS, buffer_from_handle_doc},
    {"from_iosurface", MD_FASTCALL(buffer_from_iosurface) | METH_CLASS, buffer_from_iosurface_doc},
    {"array", MD_FASTCALL(array_from_buffer), array_from_buffer_doc},
    {"close", buffer_close, METH_NOARGS, buffer_close_doc},
    {"fill", buffer_fill, METH_O, buffer_fill_doc},
    {"copy_from", buffer_copy_from, METH_O, buffer_copy_from_doc},
    {"copy_to", buffer_copy_to, METH_O, buffer_copy_to_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- attributes ---- */

static PyObject *
buffer_get_size(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.size", buffer_cast(op));
    return storage == NULL ? NULL : PyLong_FromSize_t(storage->nbytes);
}

static PyObject *
buffer_get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.handle", buffer_cast(op));
    if (storage == NULL) {
        return NULL;
    }
    storage_publish(storage); /* whoever has the handle can write on the GPU */
    return PyLong_FromVoidPtr(storage->handle);
}

static PyObject *
buffer_get_address(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.address", buffer_cast(op));
    if (storage == NULL) {
        return NULL;
    }
    return storage->address == NULL ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(storage->address);
}

static PyObject *
buffer_get_storage(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.storage", buffer_cast(op));
    return storage == NULL ? NULL : PyUnicode_FromString(storage_mode_name(storage->mode));
}

static PyObject *
buffer_get_device(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.device", buffer_cast(op));
    return storage == NULL ? NULL : device_of_record(state_of(op), storage->device);
}

/* "": it has none. */
static void
copy_label(const metal_storage *storage, char *out, size_t capacity)
{
    out[0] = '\0';
    if (storage->handle != NULL) {
        bridge_buffer_copy_label(storage->handle, out, capacity);
    }
}

static PyObject *
buffer_get_label(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.label", buffer_cast(op));
    char label[256];
    if (storage == NULL) {
        return NULL;
    }
    copy_label(storage, label, sizeof label);
    if (label[0] == '\0') {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(label, (Py_ssize_t)strlen(label), "ignore");
}

static PyObject *
buffer_get_owner(PyObject *op, void *Py_UNUSED(closure))
{
    BufferObject *self = buffer_cast(op);
    PyObject *owner = self->storage == NULL ? NULL : owners_object(self->storage);
    return Py_NewRef(owner == NULL ? Py_None : owner);
}

static PyObject *
buffer_get_is_host_accessible(PyObject *op, void *Py_UNUSED(closure))
{
    BufferObject *self = buffer_cast(op);
    return PyBool_FromLong(self->storage != NULL && self->storage->mode != BRIDGE_PRIVATE);
}

static PyObject *
buffer_get_is_closed(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(buffer_cast(op)->storage == NULL);
}

static PyGetSetDef buffer_getset[] = {
    {"size", buffer_get_size, NULL, PyDoc_STR("Usable length in bytes."), NULL},
    {"handle", buffer_get_handle, NULL,
     PyDoc_STR("The id<MTLBuffer> as an int: borrowed, valid until the Buffer is closed; 0 for an\n"
               "empty buffer, since Metal has none."), NULL},
    {"address", buffer_get_address, NULL,
     PyDoc_STR("CPU address of byte 0 as an int; None for private storage or no bytes."), NULL},
    {"storage", buffer_get_storage, NULL, PyDoc_STR("'shared', 'managed' or 'private'."), NULL},
    {"device", buffer_get_device, NULL, PyDoc_STR("The Device it was made on."), NULL},
    {"label", buffer_get_label, NULL, PyDoc_STR("The name that Metal's tools show, or None."), NULL},
    {"owner", buffer_get_owner, NULL,
     PyDoc_STR("The Python object that owns the memory, kept alive; None if it is Metal's own."),
     NULL},
    {"is_host_accessible", buffer_get_is_host_accessible, NULL,
     PyDoc_STR("True for open buffers of shared and managed storage."), NULL},
    {"is_closed", buffer_get_is_closed, NULL, PyDoc_STR("True once close() has succeeded."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef buffer_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BufferObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
buffer_repr(PyObject *op)
{
    metal_storage *storage = buffer_cast(op)->storage;
    if (storage == NULL) {
        return PyUnicode_FromString("<metal_dlpack.Buffer, closed>");
    }
    char label[256];
    copy_label(storage, label, sizeof label);
    const char *space = label[0] == '\0' ? "" : " '", *quote = label[0] == '\0' ? "" : "'";
    return PyUnicode_FromFormat("<metal_dlpack.Buffer%s%s%s of %zu bytes, storage='%s', metal:%d>",
                                space, label, quote, storage->nbytes,
                                storage_mode_name(storage->mode), storage->device->index);
}

/* ---- the object's life ---- */

static int
buffer_traverse(PyObject *op, visitproc visit, void *arg)
{
    BufferObject *self = buffer_cast(op);
    Py_VISIT(Py_TYPE(op));
    /* The owner's reference belongs to the storage.  While an export shares the storage the
     * owner is reachable from outside Python, and must look it. */
    if (self->storage != NULL && storage_is_sole(self->storage)) {
        Py_VISIT(owners_object(self->storage));
    }
    return 0;
}

static int
buffer_clear(PyObject *op)
{
    BufferObject *self = buffer_cast(op);
    /* Arrays and memoryviews of this Buffer are garbage as well but may still run code. */
    if (__atomic_load_n(&self->views, __ATOMIC_ACQUIRE) == 0) {
        metal_storage *storage = self->storage;
        self->storage = NULL;
        storage_release(storage);
    }
    return 0;
}

static void
buffer_dealloc(PyObject *op)
{
    BufferObject *self = buffer_cast(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    storage_release(self->storage);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(buffer_doc,
             "Buffer(size, *, device=None, storage=None, label=None)\n--\n\n"
             "One MTLBuffer and everything that must live as long as it.\n\n"
             "Parameters\n----------\n"
             "size : int\n"
             "    Length in bytes; 0 is allowed.  The bytes are not set to anything.\n"
             "device : Device or str, optional\n"
             "    Default: the system's default device.\n"
             "storage : {'shared', 'managed', 'private'}, optional\n"
             "    Default: get_storage_mode().\n"
             "label : str, optional\n"
             "    A name for Metal's tools.\n\n"
             "Raises\n------\n"
             "MemoryError\n"
             "    Metal has no room, or size passes the device's max_buffer_length.\n"
             "MetalError\n"
             "    There is no Metal device.\n\n"
             "Memory: freed when the last Array, memoryview and DLPack export is gone.\n"
             "Threads: may be used from any thread; nothing orders two that write the same bytes.");

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, (void *)buffer_doc},
    {Py_tp_new, buffer_new},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_traverse, buffer_traverse},
    {Py_tp_clear, buffer_clear},
    {Py_tp_methods, buffer_methods},
    {Py_tp_getset, buffer_getset},
    {Py_tp_members, buffer_members},
    {Py_tp_repr, buffer_repr},
    {Py_bf_getbuffer, buffer_getbuffer},
    {Py_bf_releasebuffer, buffer_releasebuffer},
    {0, NULL},
};

PyType_Spec buffer_spec = {
    .name = "metal_dlpack.Buffer",
    .basicsize = sizeof(BufferObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = buffer_slots,
};
