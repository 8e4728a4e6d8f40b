/* buffer.c: the Buffer type, one Python owner of one MTLBuffer.
 *
 * Owns:      one reference to a metal_storage, dropped by close() or with the object.
 * Calls:     storage.h, lookup.h to know whose a handle is, owners.h; staging.h, which knows the
 *            storage modes.  Nothing here knows of shapes, dtypes or DLPack.
 * Threads:   the GIL is held; it is released round Metal calls that allocate or wait.
 * Invariant: `storage` is set once, in buffer_from_storage, and cleared once, by close().
 */
#include "array/buffer.h"

#include "array/view_items.h"
#include "metal/lookup.h"
#include "metal/pool.h"
#include "metal/staging.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/device.h"
#include "streams/wait_rule.h"

/* ---- making ---- */

PyObject *
buffer_from_storage(md_state *state, metal_storage *storage)
{
    bool has_python_owner = owners_object(storage) != NULL; /* without one it leads nowhere */
    BufferObject *self = PyObject_GC_New(BufferObject, state->buffer_type);
    if (self == NULL) {
        storage_release(storage);
        return NULL;
    }
    self->storage = storage;
    self->views = 0;
    self->weakrefs = NULL;
    self->owns_memory = false;
    if (has_python_owner) {
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

metal_storage *
buffer_allocate_storage(md_state *state, const char *function, const device_record *device,
                        size_t nbytes, bridge_storage mode)
{
    metal_storage *storage = pool_take(device, nbytes, mode);
    if (storage != NULL) {
        return storage;
    }
    bridge_status status = WITHOUT_GIL(storage_new(device, nbytes, mode, &storage));
    if (status != BRIDGE_OK) {
        (void)errors_no_buffer(state, function, status, device, nbytes);
        return NULL;
    }
    return storage;
}

int
buffer_convert_size(const char *function, PyObject *value, int64_t *out)
{
    if (args_int64(function, "size", value, out) < 0) {
        return -1;
    }
    if (*out < 0) {
        return errors_raise(PyExc_ValueError, "%s: size (%lld bytes) is negative.", function,
                            (long long)*out);
    }
    return 0;
}

/* ---- while it is open ---- */

metal_storage *
buffer_open_storage(const char *function, BufferObject *self)
{
    if (self->storage == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: the Buffer is closed.", function);
    }
    return self->storage;
}

/* ---- of a foreign MTLBuffer ---- */

/* Steals `parent`. */
static PyObject *
wrap_handle(md_state *state, metal_storage *parent, bridge_buffer *handle, size_t nbytes,
            PyObject *owner)
{
    const device_record *device = devices_find(bridge_buffer_device(handle));
    if (device == NULL) { /* unreached: another machine, or NumPy 1 */
        PyErr_SetString(
            PyExc_ValueError,
            "Buffer.from_handle: the buffer's device is none of metal_dlpack.devices().");
        storage_release(parent);
        return NULL;
    }
    bool has_owner = args_is_given(owner);
    storage_owner record = {0};
    if (has_owner) {
        record = owners_of_object(state, owner);
    }
    metal_storage *storage;
    bridge_status status = storage_wrap_buffer(handle, parent, device, nbytes,
                                               has_owner ? &record : NULL, &storage);
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, "Buffer.from_handle", status, NULL, nbytes);
    }
    Py_XINCREF(has_owner ? owner : NULL); /* the storage owns this reference */
    storage->is_readonly |= lookup_is_readonly(handle);
    lookup_publish_readonly(storage); /* more know the handle than we do */
    return buffer_from_storage(state, storage);
}

const char buffer_from_handle_doc[] =
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
    "    The handle is not an MTLBuffer of a known device, or size passes its end.\n"
    "MetalError\n    In a forked child, where Metal cannot be used.\n\n"
    "Memory: no copy.  The handle of read-only memory always gives a read-only Buffer.\n"
    "Threads: the GIL is held.";

ARGS_METHOD(buffer_from_handle, type, "Buffer.from_handle", 0, 2, 1, "handle", "size", "owner")
{
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    void *handle;
    int64_t size = 0;
    bool has_size = args_is_given(values[1]);
    /* the handle last: a size's __index__ can let go of what it names */
    if (errors_check_fork(state, function) < 0 ||
        (has_size && buffer_convert_size(function, values[1], &size) < 0) ||
        args_handle(state, function, "id<MTLBuffer>", bridge_handle_is_buffer, values[0],
                    &handle) < 0) {
        return NULL;
    }
    metal_storage *ours =
        lookup_handle(handle); /* its MTLBuffer is longer than was asked for */
    size_t length = ours != NULL ? ours->nbytes : bridge_buffer_nbytes(handle);
    size = has_size ? size : (int64_t)length;
    if ((uint64_t)size > length) {
        storage_release(ours);
        return PyErr_Format(PyExc_ValueError,
                            "Buffer.from_handle: size (%lld bytes) passes the end of the "
                            "MTLBuffer (%zu bytes).",
                            (long long)size, length);
    }
    return wrap_handle(state, ours, handle, (size_t)size, values[2]);
}

/* ---- of an IOSurface ---- */

static PyObject *
refuse_surface(md_state *state, bridge_status status, size_t nbytes)
{
    static const char function[] = "Buffer.from_iosurface";
    const char *text = bridge_status_text(status);
    switch (status) {
    case BRIDGE_NO_SURFACES:
        return PyErr_Format(PyExc_NotImplementedError, "%s: %s; use asarray for other memory.",
                            function, text);
    /* unreached: only on a Mac */
    case BRIDGE_NOT_A_SURFACE: return PyErr_Format(PyExc_ValueError, "%s: %s.", function, text);
    case BRIDGE_NO_ADDRESS:
    case BRIDGE_NOT_PAGES:
    case BRIDGE_OTHER_PAGES:
        return errors_copy_required(state,
                                    "%s: the surface's memory (%zu bytes) cannot be shared: "
                                    "%s; lock it and copy its bytes.",
                                    function, nbytes, text);
    default: return errors_from_bridge(state, function, status, NULL, nbytes);
    }
}

const char buffer_from_iosurface_doc[] =
    "from_iosurface($type, handle, *, device=None)\n--\n\n"
    "The memory of an IOSurface (macOS), such as a video frame, as a Buffer.\n\n"
    "Parameters\n----------\n"
    "handle : int\n"
    "    The address of an IOSurfaceRef, or of a CVPixelBufferRef that lies in one; or an "
    "object\n"
    "    of PyObjC for it.\n"
    "device : Device or str, optional\n"
    "    Default: the default device.\n\n"
    "Returns\n-------\nBuffer\n"
    "    All planes, as long as IOSurfaceGetAllocSize says; shared storage.\n\n"
    "Raises\n------\n"
    "NotImplementedError\n    This is not macOS.\n"
    "ValueError\n    The handle is neither of the two, or the pixel buffer has no surface.\n"
    "CopyRequiredError\n    Metal cannot share the surface's memory.\n\n"
    "Memory: no copy; the surface is kept, and counts as in use, until the Buffer is closed\n"
    "and the last export is gone.  The caller must use the bytes on the CPU only between\n"
    "IOSurfaceLock and IOSurfaceUnlock.\n\n"
    "Source: IOSurfaceRef.h; MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:.";

ARGS_METHOD(buffer_from_iosurface, type, "Buffer.from_iosurface", 0, 1, 1, "handle", "device")
{
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    void *handle;
    if (args_address(state, function, "IOSurfaceRef", values[0], &handle) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state, function, values[1]);
    if (device == NULL) {
        return NULL;
    }
    metal_storage *storage;
    size_t nbytes;
    bridge_status status = WITHOUT_GIL(storage_wrap_surface(device, handle, &storage, &nbytes));
    /* unreached: only on a Mac */
    return status == BRIDGE_OK ? buffer_from_storage(state, storage)
                               : refuse_surface(state, status, nbytes);
}

/* ---- bytes in and out ---- */

/* The storage of an open Buffer that may be written: borrowed; NULL with an exception. */
static metal_storage *
writable_storage(const char *function, PyObject *op)
{
    metal_storage *storage = buffer_open_storage(function, buffer_cast(op));
    if (storage != NULL && storage->is_readonly) {
        PyErr_Format(PyExc_ValueError,
                     "%s: the Buffer lies over read-only memory; write to a copy of it.",
                     function);
        return NULL;
    }
    return storage;
}

/* What happens to the first `nbytes` that may be used. */
typedef struct byte_move {
    enum { SET, PUT, GET } kind; /* to `value`; from `memory`; to `memory` */
    void *memory;                /* borrowed */
    size_t nbytes;
    uint8_t value;
} byte_move;

static bridge_status
move_nogil(metal_storage *storage, const byte_move *move, bridge_error *error)
{
    size_t first = storage->first_byte;
    switch (move->kind) {
    case PUT: return staging_put_bytes(storage, first, move->nbytes, move->memory, error);
    case GET: return staging_get_bytes(storage, first, move->nbytes, move->memory, error);
    default: return staging_set_bytes(storage, first, move->nbytes, move->value, error);
    }
}

static PyObject *
move_bytes(PyObject *op, const char *function, const byte_move *move)
{
    metal_storage *storage = buffer_cast(op)->storage;
    bridge_error error;
    bridge_error_clear(&error);
    bridge_status status;
    buffer_hold(buffer_cast(op)); /* another thread must not close it meanwhile */
    int result = wait_rule_for_work(state_of(op), function, storage, move->kind != GET);
    if (result == 0) {
        status = WITHOUT_GIL(move_nogil(storage, move, &error));
        result = errors_check_status(state_of(op), function, status, &error, storage->nbytes);
    }
    buffer_unhold(buffer_cast(op));
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char buffer_fill_doc[] =
    "fill($self, value, /)\n--\n\n"
    "Set every byte, from `offset` on, to `value` (0 to 255).  Returns when it is done.";

PyObject *
buffer_fill(PyObject *op, PyObject *value)
{
    int64_t byte;
    if (args_int64("Buffer.fill", "value", value, &byte) < 0) {
        return NULL;
    }
    if (byte < 0 || byte > 255) {
        return PyErr_Format(PyExc_ValueError,
                            "Buffer.fill: value (%lld) is not within 0 to 255.",
                            (long long)byte);
    }
    metal_storage *storage = writable_storage("Buffer.fill", op); /* __index__ can close it */
    if (storage == NULL) {
        return NULL;
    }
    byte_move move = {SET, NULL, storage_usable_nbytes(storage), (uint8_t)byte};
    return move_bytes(op, "Buffer.fill", &move);
}

/* copy_from and copy_to: all the bytes of a bytes-like object and the first so many here. */
static PyObject *
transfer(PyObject *op, const char *function, PyObject *other, bool is_upload)
{
    foreign_view view;
    if (view_open_bytes(other, !is_upload, &view) < 0) {
        return NULL;
    }
    /* only now: opening the other can run anything, also close() */
    metal_storage *storage = is_upload ? writable_storage(function, op)
                                       : buffer_open_storage(function, buffer_cast(op));
    if (storage == NULL) {
        view_close(&view);
        return NULL;
    }
    size_t nbytes = (size_t)view.memory.len;
    PyObject *result = NULL;
    if (nbytes > storage_usable_nbytes(storage)) {
        PyErr_Format(PyExc_ValueError, "%s: %zu bytes do not fit in the Buffer's %zu bytes.",
                     function, nbytes, storage_usable_nbytes(storage));
    }
    else {
        byte_move move = {is_upload ? PUT : GET, view.memory.buf, nbytes, 0};
        result = move_bytes(op, function, &move);
    }
    view_close(&view);
    return result;
}

const char buffer_copy_from_doc[] =
    "copy_from($self, source, /)\n--\n\n"
    "Copy the bytes of a contiguous bytes-like object into the buffer, from `offset` on.\n\n"
    "Works for every storage mode.  Raises ValueError if `source` is longer.";

PyObject *
buffer_copy_from(PyObject *op, PyObject *source)
{
    return transfer(op, "Buffer.copy_from", source, true);
}

const char buffer_copy_to_doc[] =
    "copy_to($self, destination, /)\n--\n\n"
    "Copy bytes of the buffer, from `offset` on, into a writable bytes-like object.\n\n"
    "Works for every storage mode.  Raises ValueError if `destination` is longer.";

PyObject *
buffer_copy_to(PyObject *op, PyObject *destination)
{
    return transfer(op, "Buffer.copy_to", destination, false);
}

/* ---- the buffer protocol: the bytes ---- */

int
buffer_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    BufferObject *self = buffer_cast(op);
    view->obj = NULL;
    metal_storage *storage = buffer_open_storage("memoryview(Buffer)", self);
    if (storage == NULL) {
        return -1;
    }
    if (storage->mode == BRIDGE_PRIVATE) {
        return errors_raise(state_of(op)->copy_required_error,
                            "memoryview(Buffer): private storage has no CPU address; use "
                            "copy_to() to get its bytes.");
    }
    static char empty[1]; /* an address for no bytes */
    void *address = storage->address == NULL ? empty : storage->address + storage->first_byte;
    touched_bytes bytes = {storage, storage->first_byte, storage_usable_nbytes(storage)};
    if (PyBuffer_FillInfo(view, op, address, (Py_ssize_t)bytes.nbytes, storage->is_readonly,
                          flags) < 0) {
        return -1;
    }
    view->ndim = view->shape == NULL ? 0 : 1; /* as an Array of the bytes, and NumPy, answer */
    lookup_publish_readonly(storage);
    buffer_hold(self); /* for the view; given back in buffer_releasebuffer */
    if (wait_rule_for_cpu(op, "memoryview(Buffer)", &bytes, !storage->is_readonly) < 0) {
        buffer_unhold(self);
        Py_CLEAR(view->obj);
        return -1;
    }
    return 0;
}

void
buffer_releasebuffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    buffer_unhold(buffer_cast(op));
}
