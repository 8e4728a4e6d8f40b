/* buffer.c: the Buffer type, one Python owner of one MTLBuffer.
 *
 * Owns:      one reference to a metal_storage, dropped by close() or with the object.
 * Calls:     storage.h, owners.h.  Nothing here knows of shapes, dtypes or DLPack.
 * Threads:   the GIL is held; it is released round Metal calls that allocate or wait.
 * Invariant: `storage` is set once, in buffer_from_storage, and cleared once, by close().
 */
#include "array/buffer.h"

#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"

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
    if (has_python_owner) {
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
        PyErr_Format(PyExc_ValueError, "%s: size (%lld bytes) is negative.", function,
                     (long long)*out);
        return -1;
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
