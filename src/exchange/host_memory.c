/* host_memory.c: see host_memory.h. */
#include "exchange/host_memory.h"

#include <stdio.h>

#include "copy/copy.h"
#include "metal/readonly.h"
#include "metal/storage.h"
#include "python/errors.h"
#include "python/owners.h"

/* ---- copying ---- */

PyObject *
host_memory_copy(md_state *state, const char *function, const host_items *items,
                 const device_record *device)
{
    array_creation what = {.device = device,
                           .mode = BRIDGE_SHARED,
                           .order = 'C',
                           .ndim = items->layout->ndim,
                           .shape = items->layout->shape,
                           .dtype = items->dtype,
                           .is_padded = items->is_padded};
    PyObject *op = array_allocate(state, function, &what);
    if (op == NULL || array_cast(op)->nitems == 0) {
        return op;
    }
    char *origin = array_storage(array_cast(op))->address;
    strided_layout dense;
    bool is_packed = array_is_packed(array_cast(op)), is_done = true;
    array_get_layout(array_cast(op), &dense);
    bits_items from = {items->layout, items->address, 0, items->dtype, false};
    bits_items to = {&dense, origin, 0, items->dtype, false};
    Py_BEGIN_ALLOW_THREADS
    if (is_packed) {
        bits_copy(&to, &from);
    }
    else {
        is_done = copy_strided(&dense, origin, items->layout, items->address);
    }
    Py_END_ALLOW_THREADS
    if (!is_done) {
        Py_CLEAR(op);
        PyErr_NoMemory();
    }
    return op;
}

/* ---- nothing ---- */

PyObject *
host_memory_empty(md_state *state, const char *function, const host_items *items,
                  const device_record *device)
{
    metal_storage *storage = buffer_allocate_storage(state, function, device, 0, BRIDGE_SHARED);
    if (storage == NULL) {
        return NULL;
    }
    storage->is_readonly = items->is_readonly;
    return array_over_storage(state, storage, 0, items->layout, items->dtype,
                              items->is_readonly, items->is_padded);
}

/* ---- sharing ---- */

/* The storage of ours that already holds the bytes: +1.  NULL: none does. */
static metal_storage *
find_parent(const host_bytes *bytes, const device_record *device)
{
    metal_storage *parent =
        bridge_is_forked() ? NULL : storage_find_memory(bytes->address, bytes->nbytes);
    if (parent != NULL && parent->device != device) {
        storage_release(parent);
        return NULL;
    }
    return parent;
}

/* Steals `parent`. */
static bridge_status
wrap_pages(metal_storage *parent, const host_bytes *bytes, const storage_owner *owner,
           metal_storage **out, size_t *offset_bytes)
{
    *offset_bytes = (size_t)(bytes->address - parent->address);
    bridge_status status = storage_wrap_parent(parent, owner, out);
    if (status != BRIDGE_OK) {
        storage_release(parent);
        return status;
    }
    (*out)->nbytes = *offset_bytes + bytes->nbytes;
    (*out)->first_byte = *offset_bytes;
    (*out)->is_host_memory = true;
    return BRIDGE_OK;
}

static void
write_reason(bridge_status status, const host_bytes *bytes, const device_record *device,
             char reason[HOST_REASON_MAX])
{
    if (status == BRIDGE_TOO_LARGE) {
        (void)snprintf(
            reason, HOST_REASON_MAX,
            "its whole pages (%zu bytes, and the rest of the pages) are longer than the "
            "device's max_buffer_length (%llu bytes)",
            bytes->nbytes, (unsigned long long)device->facts.max_buffer_length);
        return;
    }
    (void)snprintf(reason, HOST_REASON_MAX, "%s", bridge_status_text(status));
}

metal_storage *
host_memory_wrap(const host_bytes *bytes, const storage_owner *owner,
                 const device_record *device, size_t *offset_bytes,
                 char reason[HOST_REASON_MAX])
{
    metal_storage *storage;
    bridge_status status;
    metal_storage *parent = find_parent(bytes, device);
    Py_BEGIN_ALLOW_THREADS
    status = parent != NULL ? wrap_pages(parent, bytes, owner, &storage, offset_bytes)
                            : storage_wrap_host(device, bytes->address, bytes->nbytes, owner,
                                                &storage, offset_bytes);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        write_reason(status, bytes, device, reason);
        return NULL;
    }
    storage->is_readonly |= bytes->is_readonly;
    if (!storage->is_readonly && !bytes->is_honest) {
        storage->is_readonly = readonly_knows_bytes(bytes->address, bytes->nbytes);
    }
    return storage;
}

PyObject *
host_memory_share(md_state *state, const host_items *items, const storage_owner *owner,
                  const device_record *device, char reason[HOST_REASON_MAX])
{
    size_t offset;
    int64_t first, end;
    if ((uintptr_t)items->address % (uintptr_t)dtype_alignment(items->dtype) != 0) {
        (void)snprintf(
            reason, HOST_REASON_MAX,
            "the address of its first item (%p) is not a multiple of the element's alignment "
            "(%lld bytes)",
            (void *)items->address, (long long)dtype_alignment(items->dtype));
        return NULL;
    }
    if (!bits_byte_span(items->layout, bits_per_item(items->dtype, items->is_padded), 0, &first,
                        &end)) {
        /* unreached: no test makes it fail here */
        (void)snprintf(reason, HOST_REASON_MAX,
                       "its items reach 2**60 bytes or farther, which no memory has");
        return NULL;
    }
    host_bytes bytes = {items->address + first, (size_t)(end - first), items->is_readonly,
                        items->is_honest};
    metal_storage *storage = host_memory_wrap(&bytes, owner, device, &offset, reason);
    if (storage == NULL) {
        return NULL;
    }
    return array_over_storage(state, storage, (int64_t)offset - first, items->layout,
                              items->dtype, items->is_readonly, items->is_padded);
}

PyObject *
host_memory_refuse(md_state *state, const char *function, const char *reason)
{
    if (errors_check_fork(state, function) < 0) {
        return NULL; /* a copy would not do either */
    }
    return errors_copy_required(
        state,
        "%s: the memory cannot be shared with Metal: %s; asarray(x, copy=True) copies it.",
        function, reason);
}

PyObject *
host_memory_import(md_state *state, const char *function, const host_items *items,
                   PyObject *owner, const import_request *request)
{
    const device_record *device = import_request_device(state, function, request);
    if (device == NULL) {
        return NULL;
    }
    if (request->copy != 1 && layout_is_empty(items->layout)) {
        return host_memory_empty(state, function, items, device);
    }
    if (request->copy != 1) {
        char reason[HOST_REASON_MAX];
        storage_owner record = owners_of_object(state, Py_NewRef(owner));
        PyObject *array = host_memory_share(state, items, &record, device, reason);
        if (array != NULL || PyErr_Occurred()) {
            return array;
        }
        Py_DECREF(owner);
        if (request->copy == 0) {
            return host_memory_refuse(state, function, reason);
        }
    }
    return host_memory_copy(state, function, items, device);
}

/* ---- multiprocessing's SharedMemory ---- */

static const char home[] = "multiprocessing.shared_memory";

int
shared_memory_check(PyObject *x)
{
    for (PyTypeObject *type = Py_TYPE(x); type != NULL; type = type->tp_base) {
        /* of a class made in Python, tp_name lacks the module */
        if (strcmp(type->tp_name, "SharedMemory") != 0) {
            continue;
        }
        PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
        if (module == NULL) {
            return -1;
        }
        bool is_it =
            PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, home) == 0;
        Py_DECREF(module);
        if (is_it) {
            return 1;
        }
    }
    return 0;
}

PyObject *
shared_memory_owner(const char *function, PyObject *x, const Py_buffer **view)
{
    PyObject *bytes = PyObject_GetAttrString(x, "buf");
    if (bytes == Py_None) { /* as close() leaves it */
        Py_DECREF(bytes);
        return PyErr_Format(PyExc_ValueError, "%s: the SharedMemory is closed.", function);
    }
    PyObject *fresh = bytes == NULL ? NULL : view_keep(bytes, view);
    Py_XDECREF(bytes);
    if (fresh == NULL) {
        return NULL;
    }
    /* A tuple drops its last item first: the view, then x, whose end closes the mapping and
     * fails while a view is left. */
    PyObject *owner = PyTuple_Pack(2, x, fresh);
    Py_DECREF(fresh);
    return owner;
}
