/* buffer_surface.c: Buffer.from_iosurface, the memory of an IOSurface as a Buffer.
 *
 * Calls:   storage_surface.h.
 * Threads: the GIL is held; released while the surface is locked and wrapped.
 */
#include "array/buffer.h"
#include "metal/storage_surface.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/device.h"

static PyObject *
refuse(md_state *state, bridge_status status, size_t nbytes)
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
        return errors_copy_required(
            state,
            "%s: the surface's memory (%zu bytes) cannot be shared: %s; "
            "lock it and copy its bytes.",
            function, nbytes, text);
    default: return errors_from_bridge(state, function, status, NULL, nbytes);
    }
}

const char buffer_from_iosurface_doc[] =
    "from_iosurface($type, handle, *, device=None)\n--\n\n"
    "The memory of an IOSurface (macOS), such as a video frame, as a Buffer.\n\n"
    "Parameters\n----------\n"
    "handle : int\n"
    "    The address of an IOSurfaceRef, or of a CVPixelBufferRef that lies in one.\n"
    "device : Device or str, optional\n"
    "    Default: the default device.\n\n"
    "Returns\n-------\nBuffer\n"
    "    All planes, as long as IOSurfaceGetAllocSize says; shared storage.\n\n"
    "Raises\n------\n"
    "NotImplementedError\n    This is not macOS.\n"
    "ValueError\n    The handle is neither of the two, or the pixel buffer has no surface.\n"
    "CopyRequiredError\n    Metal cannot share the surface's memory.\n\n"
    "Memory: no copy; the surface is kept, and counts as in use, until the Buffer is closed "
    "and the\n"
    "last export is gone.  The caller must use the bytes on the CPU only between\n"
    "IOSurfaceLock and IOSurfaceUnlock.\n\n"
    "Source: IOSurfaceRef.h; MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:.";

PyObject *
buffer_from_iosurface(PyObject *type, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames)
{
    static const args_spec spec = {
        "Buffer.from_iosurface", 0, 1, 1, {"handle", "device", NULL}};
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *values[2];
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    if (!PyLong_Check(values[0])) {
        return PyErr_Format(
            PyExc_TypeError,
            "Buffer.from_iosurface: the handle must be an int (the address of an "
            "IOSurfaceRef), not %.100s.",
            Py_TYPE(values[0])->tp_name);
    }
    void *handle = PyLong_AsVoidPtr(values[0]);
    if (handle == NULL && PyErr_Occurred()) {
        return NULL;
    }
    const device_record *device = device_convert(state, "Buffer.from_iosurface", values[1]);
    if (device == NULL) {
        return NULL;
    }
    metal_storage *storage;
    size_t nbytes;
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_wrap_surface(device, handle, &storage, &nbytes);
    Py_END_ALLOW_THREADS
    /* unreached: only on a Mac */
    return status == BRIDGE_OK ? buffer_from_storage(state, storage)
                               : refuse(state, status, nbytes);
}
