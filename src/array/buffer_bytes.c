/* buffer_bytes.c: the bytes of a Buffer in and out: fill, copies, the buffer protocol.
 *
 * Calls:   staging.h, which knows the storage modes.
 * Threads: the GIL is held; it is released while waiting and copying.
 */
#include "array/buffer.h"
#include "array/view_items.h"
#include "metal/lookup.h"
#include "metal/staging.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/wait_rule.h"

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

const char buffer_fill_doc[] =
    "fill($self, value, /)\n--\n\n"
    "Set every byte, from `offset` on, to `value` (0 to 255).  Returns when it is done.";

PyObject *
buffer_fill(PyObject *op, PyObject *value)
{
    metal_storage *storage = writable_storage("Buffer.fill", op);
    int64_t byte;
    if (storage == NULL || args_int64("Buffer.fill", "value", value, &byte) < 0) {
        return NULL;
    }
    if (byte < 0 || byte > 255) {
        return PyErr_Format(PyExc_ValueError,
                            "Buffer.fill: value (%lld) is not within 0 to 255.",
                            (long long)byte);
    }
    bridge_error error;
    bridge_error_clear(&error);
    bridge_status status;
    buffer_hold(buffer_cast(op)); /* another thread must not close it meanwhile */
    if (wait_rule_for_work(state_of(op), "Buffer.fill", storage, true) < 0) {
        /* unreached: no test makes it fail here */
        buffer_unhold(buffer_cast(op));
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = staging_set_bytes(storage, storage->first_byte, storage_usable_nbytes(storage),
                               (uint8_t)byte, &error);
    Py_END_ALLOW_THREADS
    buffer_unhold(buffer_cast(op));
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state_of(op), "Buffer.fill", status, &error, storage->nbytes);
    }
    Py_RETURN_NONE;
}

/* copy_from and copy_to: all the bytes of a bytes-like object and the first so many of ours. */
static PyObject *
transfer(PyObject *op, const char *function, PyObject *other, bool is_upload)
{
    metal_storage *storage = is_upload ? writable_storage(function, op)
                                       : buffer_open_storage(function, buffer_cast(op));
    foreign_view view;
    if (storage == NULL || view_open_bytes(other, !is_upload, &view) < 0) {
        return NULL;
    }
    size_t nbytes = (size_t)view.memory.len;
    if (nbytes > storage_usable_nbytes(storage)) {
        PyErr_Format(PyExc_ValueError, "%s: %zu bytes do not fit in the Buffer's %zu bytes.",
                     function, nbytes, storage_usable_nbytes(storage));
        view_close(&view);
        return NULL;
    }
    bridge_error error;
    bridge_error_clear(&error);
    bridge_status status;
    buffer_hold(buffer_cast(op));
    if (wait_rule_for_work(state_of(op), function, storage, is_upload) < 0) {
        /* unreached: no test makes it fail here */
        buffer_unhold(buffer_cast(op));
        view_close(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status =
        is_upload
            ? staging_put_bytes(storage, storage->first_byte, nbytes, view.memory.buf, &error)
            : staging_get_bytes(storage, storage->first_byte, nbytes, view.memory.buf, &error);
    Py_END_ALLOW_THREADS
    buffer_unhold(buffer_cast(op));
    view_close(&view);
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state_of(op), function, status, &error, storage->nbytes);
    }
    Py_RETURN_NONE;
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
        (void)errors_copy_required(state_of(op),
                                   "memoryview(Buffer): private storage has no CPU "
                                   "address; use copy_to() to get its bytes.");
        return -1;
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
