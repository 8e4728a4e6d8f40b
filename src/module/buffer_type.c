/* buffer_type.c: the Buffer type: made, closed, its attributes and the table of its methods.
 *
 * Threads:   the GIL is held; it is released round Metal calls that allocate or wait.
 */
#include "array/array.h"

#include <structmember.h>

#include "array/buffer.h"
#include "metal/storage.h"
#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "python/owners.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "streams/wait_rule.h"

static void
set_label(metal_storage *storage, const char *label)
{
    if (label != NULL && storage->handle != NULL) {
        bridge_buffer_set_label(storage->handle, label);
        storage->is_labelled = true;
    }
}

ARGS_NEW(buffer_new, "Buffer", 0, 1, 1, "size", "device", "storage", "label")
{
    md_state *state = PyType_GetModuleState(type);
    const char *label;
    int64_t size;
    bridge_storage mode;
    if (buffer_convert_size(function, values[0], &size) < 0 ||
        args_text_or_none(function, "label", values[3], &label) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state, function, values[1]);
    if (device == NULL || storage_mode_convert(state, function, values[2], &mode) < 0) {
        return NULL;
    }
    metal_storage *storage =
        buffer_allocate_storage(state, function, device, (size_t)size, mode);
    PyObject *op = storage == NULL ? NULL : buffer_from_storage(state, storage);
    if (op != NULL) {
        set_label(buffer_cast(op)->storage, label);
        buffer_cast(op)->owns_memory = true;
    }
    return op;
}

/* ---- closing ---- */

PyDoc_STRVAR(buffer_close_doc,
             "close($self, /)\n--\n\n"
             "Release the memory now.  Closing twice is allowed.\n\n"
             "Raises\n------\n"
             "BufferError\n    Arrays, memoryviews or DLPack exports still use it.");

static PyObject *
buffer_close(PyObject *op, PyObject *Py_UNUSED(unused))
{
    BufferObject *self = buffer_cast(op);
    /* GPU work in flight holds the storage: wait for it.  Without holding the Buffer, so that of
     * several threads that close it none refuses another; the wait looks at the storage before
     * anything else can run, and not again. */
    if (self->storage != NULL &&
        wait_rule_for_work(state_of(op), "Buffer.close", self->storage, true) < 0) {
        return NULL;
    }
    if (self->storage == NULL) { /* closed before, or by another thread meanwhile */
        Py_RETURN_NONE;
    }
    Py_ssize_t views = __atomic_load_n(&self->views, __ATOMIC_ACQUIRE);
    if (views > 0) {
        return PyErr_Format(
            PyExc_BufferError,
            "Buffer.close: %zd arrays or memoryviews still use the buffer; delete them first.",
            views);
    }
    if (!storage_is_sole(self->storage)) {
        return PyErr_Format(
            PyExc_BufferError,
            "Buffer.close: a DLPack export of the buffer is still alive in another framework.");
    }
    metal_storage *storage = self->storage;
    self->storage = NULL;
    storage_release(storage);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    buffer_reduce_doc,
    "__reduce__($self, /)\n--\n\nTypeError: an Array is pickled and copied, not its Buffer.");

/* Refuse to pickle: a handle and an owner mean nothing in another process, and the bytes
 * alone are an Array of uint8. */
static PyObject *
buffer_reduce(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(unused))
{
    return PyErr_Format(PyExc_TypeError,
                        "Buffer: a Buffer cannot be pickled or copied; use an Array over its "
                        "bytes: buffer.array(buffer.size - buffer.offset, 'uint8').");
}

PyDoc_STRVAR(
    buffer_sizeof_doc,
    "__sizeof__($self, /)\n--\n\n"
    "Bytes of the object, and of the memory that Buffer(size) made, until it is closed.");

static PyObject *
buffer_sizeof(PyObject *op, PyObject *Py_UNUSED(unused))
{
    BufferObject *self = buffer_cast(op);
    bool counts = self->owns_memory && self->storage != NULL;
    return PyLong_FromSize_t(sizeof *self + (counts ? self->storage->nbytes : 0));
}

static PyMethodDef buffer_methods[] = {
    {"from_handle", MD_FASTCALL(buffer_from_handle) | METH_CLASS, buffer_from_handle_doc},
    {"from_host", MD_FASTCALL(buffer_from_host) | METH_CLASS, buffer_from_host_doc},
    {"from_iosurface", MD_FASTCALL(buffer_from_iosurface) | METH_CLASS,
     buffer_from_iosurface_doc},
    {"array", MD_FASTCALL(array_from_buffer), array_from_buffer_doc},
    {"close", buffer_close, METH_NOARGS, buffer_close_doc},
    {"fill", buffer_fill, METH_O, buffer_fill_doc},
    {"copy_from", buffer_copy_from, METH_O, buffer_copy_from_doc},
    {"copy_to", buffer_copy_to, METH_O, buffer_copy_to_doc},
    {"__reduce__", buffer_reduce, METH_NOARGS, buffer_reduce_doc},
    {"__sizeof__", buffer_sizeof, METH_NOARGS, buffer_sizeof_doc},
    CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};

/* ---- attributes ---- */

/* A getter of an open Buffer's, for what its storage says. */
#define OPEN_FACT(name, value) \
    static PyObject *buffer_get_##name(PyObject *op, void *Py_UNUSED(closure)) \
    { \
        metal_storage *storage = buffer_open_storage("Buffer." #name, buffer_cast(op)); \
        return storage == NULL ? NULL : (value); \
    }
OPEN_FACT(size, PyLong_FromSize_t(storage->nbytes))
OPEN_FACT(offset, PyLong_FromSize_t(storage->first_byte))
OPEN_FACT(address, storage->address == NULL
                       ? Py_NewRef(Py_None)
                       : (WATCH_GIVE(storage->handle), PyLong_FromVoidPtr(storage->address)))
OPEN_FACT(gpu_address,
          PyLong_FromUnsignedLongLong(storage->handle == NULL
                                          ? 0
                                          : bridge_buffer_gpu_address(storage->handle)))
OPEN_FACT(storage, PyUnicode_FromString(storage_mode_name(storage->mode)))
OPEN_FACT(device, device_of_record(state_of(op), storage->device))
#undef OPEN_FACT

static PyObject *
buffer_get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    metal_storage *storage = buffer_open_storage("Buffer.handle", buffer_cast(op));
    if (storage == NULL) {
        return NULL;
    }
    storage_publish(storage); /* who has the handle can write on the GPU */
    return PyLong_FromVoidPtr(storage->handle);
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
    return state_label(label);
}

static PyObject *
buffer_get_owner(PyObject *op, void *Py_UNUSED(closure))
{
    BufferObject *self = buffer_cast(op);
    PyObject *owner = self->storage == NULL ? NULL : owners_object(self->storage);
    if (owner != NULL && PyMemoryView_Check(owner) && PyMemoryView_GET_BASE(owner) != NULL) {
        owner = PyMemoryView_GET_BASE(owner); /* what the view of it keeps in place */
    }
    return Py_NewRef(owner == NULL ? Py_None : owner);
}

static PyObject *
buffer_get_is_host_accessible(PyObject *op, void *Py_UNUSED(closure))
{
    BufferObject *self = buffer_cast(op);
    return PyBool_FromLong(self->storage != NULL && self->storage->mode != BRIDGE_PRIVATE);
}

MD_GETTER(buffer_get_is_closed, PyBool_FromLong(buffer_cast(op)->storage == NULL));

static PyGetSetDef buffer_getset[] = {
    MD_FACT(buffer, size,
            "Where the usable bytes end, counted from byte 0 of the MTLBuffer: their\n"
            "number, if offset is 0."),
    MD_FACT(buffer, offset,
            "Where the usable bytes begin: 0, except over host memory.  There the\n"
            "MTLBuffer is whole pages, and the bytes before `offset` are foreign."),
    MD_FACT(
        buffer, handle,
        "The id<MTLBuffer> as an int: borrowed, valid until the Buffer is closed; 0 for an\n"
        "empty buffer, since Metal has none."),
    MD_FACT(buffer, address,
            "CPU address of byte 0 as an int; None for private storage or no bytes."),
    MD_FACT(
        buffer, gpu_address,
        "The GPU's address of byte 0 as an int, for pointers in what a kernel is given: an\n"
        "Array's first item is `byte_offset` after it.  0: no bytes.  The kernel may use it\n"
        "in a launch that has the Array among its arguments or in resources=.\n\n"
        "Source: MTLBuffer gpuAddress."),
    MD_FACT(buffer, storage, "'shared', 'managed' or 'private'."),
    MD_FACT(buffer, device, "The Device it was made on."),
    MD_FACT(buffer, label, "The name that Metal's tools show, or None."),
    MD_FACT(buffer, owner,
            "The Python object that owns the memory, kept alive; None if it is Metal's own."),
    MD_FACT(buffer, is_host_accessible, "True for open buffers of shared and managed storage."),
    MD_FACT(buffer, is_closed, "True once close() has succeeded."),
    MD_LAST_FACT,
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
    return PyUnicode_FromFormat(
        "<metal_dlpack.Buffer%s%s%s of %zu bytes, storage='%s', metal:%d>", space, label, quote,
        storage->nbytes, storage_mode_name(storage->mode), storage->device->index);
}

/* ---- the object's life ---- */

static int
buffer_traverse(PyObject *op, visitproc visit, void *arg)
{
    BufferObject *self = buffer_cast(op);
    Py_VISIT(Py_TYPE(op));
    /* The storage holds the reference to the owner.  While an export shares the storage,
     * something outside Python can reach the owner: do not visit it then. */
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
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    owners_release_storage(state_if_alive(op), self->storage);
    state_free_object(op);
}

PyDoc_STRVAR(
    buffer_doc,
    "Buffer(size, *, device=None, storage=None, label=None)\n--\n\n"
    "One MTLBuffer and everything that must live as long as it.\n\n"
    "Parameters\n----------\n"
    "size : int\n"
    "    Length in bytes; 0 is allowed.  The bytes are not initialised.\n"
    "device : Device or str, optional\n"
    "    Default: the system's default device.\n"
    "storage : {'shared', 'managed', 'private'}, optional\n"
    "    Default: get_storage_mode().\n"
    "label : str, optional\n"
    "    A name for Metal's tools.\n\n"
    "Raises\n------\n"
    "MemoryError\n"
    "    Metal has no memory left, or size exceeds the device's max_buffer_length.\n"
    "MetalError\n    There is no Metal device.\n\n"
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

MD_SPEC(buffer, "Buffer", sizeof(BufferObject), 0, 0);
