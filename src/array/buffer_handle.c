/* buffer_handle.c: Buffer.from_handle, a foreign MTLBuffer as a Buffer.
 *
 * Calls:   handles.h, devices.h, to know whose it is; storage.h to keep it.
 * Threads: the GIL is held.
 */
#include "array/buffer.h"
#include "metal/handles.h"
#include "metal/readonly.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"
#include "streams/device.h"

static bridge_buffer *
convert_handle(md_state *state, PyObject *value)
{
    void *handle;
    if (args_handle(state, "Buffer.from_handle", "id<MTLBuffer>", value, &handle) < 0) {
        return NULL;
    }
    if (!bridge_handle_is_buffer(handle)) {
        PyErr_Format(PyExc_ValueError,
                     "Buffer.from_handle: %p is not the address of an id<MTLBuffer>.", handle);
        return NULL;
    }
    return handle;
}

/* A buffer of ours is found, so that all its storages know of each other's work: `parent`,
 * stolen.  NULL: it is foreign. */
static bridge_status
wrap(metal_storage *parent, bridge_buffer *handle, const device_record *device,
     const storage_owner *owner, size_t nbytes, metal_storage **out)
{
    if (parent == NULL) {
        return storage_wrap_buffer(handle, device, nbytes, owner, out);
    }
    bridge_status status = storage_wrap_parent(parent, owner, out);
    if (status == BRIDGE_OK) {
        (*out)->nbytes = nbytes;
    }
    else {
        storage_release(parent);
    }
    return status;
}

/* Steals `parent`. */
static PyObject *
wrap_handle(md_state *state, metal_storage *parent, bridge_buffer *handle, size_t nbytes,
            PyObject *owner)
{
    const device_record *device = devices_find(bridge_buffer_device(handle));
    if (device == NULL) { /* unreached: another machine, or NumPy 1 */
        PyErr_SetString(PyExc_ValueError, "Buffer.from_handle: the buffer's device is none of "
                                          "metal_dlpack.devices().");
        storage_release(parent);
        return NULL;
    }
    bool has_owner = args_is_given(owner);
    storage_owner record = {0};
    if (has_owner) {
        record = owners_of_object(state, owner);
    }
    metal_storage *storage;
    bridge_status status =
        wrap(parent, handle, device, has_owner ? &record : NULL, nbytes, &storage);
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, "Buffer.from_handle", status, NULL, nbytes);
    }
    Py_XINCREF(has_owner ? owner : NULL); /* the storage owns this reference */
    storage->is_readonly |= readonly_knows_handle(handle);
    readonly_publish(storage); /* more know the handle than we do */
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

PyObject *
buffer_from_handle(PyObject *type, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "Buffer.from_handle", 0, 2, 1, {"handle", "size", "owner", NULL}};
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *values[3];
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    if (errors_check_fork(state, "Buffer.from_handle") < 0) {
        return NULL;
    }
    bridge_buffer *handle = convert_handle(state, values[0]);
    if (handle == NULL) {
        return NULL;
    }
    metal_storage *ours = handles_find(handle); /* its MTLBuffer is longer than was asked for */
    size_t length = ours != NULL ? ours->nbytes : bridge_buffer_nbytes(handle);
    int64_t size = (int64_t)length;
    if (args_is_given(values[1]) &&
        buffer_convert_size("Buffer.from_handle", values[1], &size) < 0) {
        storage_release(ours);
        return NULL;
    }
    if ((uint64_t)size > length) {
        storage_release(ours);
        return PyErr_Format(PyExc_ValueError,
                            "Buffer.from_handle: size (%lld bytes) passes the end of the "
                            "MTLBuffer (%zu bytes).",
                            (long long)size, length);
    }
    return wrap_handle(state, ours, handle, (size_t)size, values[2]);
}
