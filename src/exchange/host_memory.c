/* host_memory.c: see host_memory.h. */
#include "exchange/host_memory.h"

#include "array/array_copy.h"
#include "array/array_numpy.h"
#include "metal/lookup.h"
#include "metal/storage.h"
#include "python/attribute.h"
#include "python/errors.h"
#include "python/owners.h"

/* ---- copying ---- */

static PyObject *
copy_items(md_state *state, const char *function, const host_items *items,
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
    if (op == NULL) {
        return NULL;
    }
    array_side to,
        from = {.origin = items->address, .dtype = items->dtype, .is_padded = items->is_padded};
    layout_copy(items->layout, &from.layout);
    array_side_set(&to, array_cast(op));
    if (array_copy_sides(function, &to, &from, NULL) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

/* ---- nothing ---- */

static PyObject *
share_nothing(md_state *state, const char *function, const host_items *items,
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

/* Bytes in CPU memory; the last two as of host_items. */
typedef struct host_bytes {
    char *address;
    size_t nbytes; /* > 0 */
    bool is_readonly, is_honest;
} host_bytes;

/* Our storage that already holds the bytes: +1.  NULL: none does. */
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
    bridge_status status = storage_wrap_buffer(parent->handle, parent, parent->device,
                                               *offset_bytes + bytes->nbytes, owner, out);
    if (status == BRIDGE_OK) {
        (*out)->first_byte = *offset_bytes;
        (*out)->is_host_memory = true;
    }
    return status;
}

/* Are the pages that hold the bytes too long for Metal?  `*reason` says so. */
static bool
are_pages_too_long(const char *address, size_t nbytes, const device_record *device,
                   dlpack_fault *reason)
{
    uint64_t most = device->facts.max_buffer_length;
    if (nbytes < most / 2) { /* most are */
        return false;
    }
    uint64_t length = storage_pages_nbytes(address, nbytes);
    *reason = (dlpack_fault){COPY_TOO_LONG, (int64_t)nbytes, (int64_t)length, (int64_t)most};
    return length > most;
}

/* Wrap the pages that hold the bytes; these begin at `*offset_bytes` of the storage.  All
 * shared CPU memory goes this way.  Owned (+1), and `owner` is taken.  NULL without an
 * exception: Metal cannot share this memory, `*reason` says why: COPY_..., and the owner stays the
 * caller's. */
static metal_storage *
wrap_bytes(const host_bytes *bytes, const storage_owner *owner, const device_record *device,
           size_t *offset_bytes, dlpack_fault *reason)
{
    metal_storage *storage;
    if (are_pages_too_long(bytes->address, bytes->nbytes, device, reason)) {
        return NULL;
    }
    metal_storage *parent = find_parent(bytes, device);
    bridge_status status =
        WITHOUT_GIL(parent != NULL ? wrap_pages(parent, bytes, owner, &storage, offset_bytes)
                                   : storage_wrap_host(device, bytes->address, bytes->nbytes,
                                                       owner, &storage, offset_bytes));
    if (status != BRIDGE_OK) {
        *reason = (dlpack_fault){COPY_METAL, status, 0, 0};
        return NULL;
    }
    storage->is_readonly |= bytes->is_readonly;
    if (!storage->is_readonly && !bytes->is_honest) {
        storage->is_readonly = lookup_has_readonly(bytes->address, bytes->nbytes);
    }
    return storage;
}

/* The bytes of the items, from their address.  False: no Metal memory can hold them so. */
static bool
find_items(const host_items *items, int64_t *first, int64_t *end, dlpack_fault *reason)
{
    int64_t alignment = dtype_alignment(items->dtype);
    uintptr_t address = (uintptr_t)items->address;
    if (address % (uintptr_t)alignment != 0) {
        *reason = (dlpack_fault){COPY_MISALIGNED, (int64_t)address, alignment, 0};
        return false;
    }
    *reason = (dlpack_fault){COPY_TOO_FAR, 0, 0, 0};
    return bits_byte_span(items->layout, dtype_step_bits(items->dtype, items->is_padded), 0,
                          first, end);
}

bool
host_memory_reason(const host_items *items, const device_record *device, dlpack_fault *reason)
{
    int64_t first, end;
    return !find_items(items, &first, &end, reason) ||
           are_pages_too_long(items->address + first, (size_t)(end - first), device, reason);
}

/* An Array over the pages that hold the items.  `owner` is taken on success, and also if
 * there is an exception.  NULL without one: as wrap_bytes. */
static PyObject *
share_items(md_state *state, const host_items *items, const storage_owner *owner,
            const device_record *device, dlpack_fault *reason)
{
    size_t offset;
    int64_t first, end;
    if (!find_items(items, &first, &end, reason)) {
        return NULL;
    }
    host_bytes bytes = {items->address + first, (size_t)(end - first), items->is_readonly,
                        items->is_honest};
    metal_storage *storage = wrap_bytes(&bytes, owner, device, &offset, reason);
    if (storage == NULL) {
        return NULL;
    }
    return array_over_storage(state, storage, (int64_t)offset - first, items->layout,
                              items->dtype, items->is_readonly, items->is_padded);
}

/* CopyRequiredError, or MetalError in a forked child. */
static PyObject *
refuse(md_state *state, const char *function, const dlpack_fault *reason)
{
    if (errors_check_fork(state, function) < 0) {
        return NULL; /* a copy would not do either */
    }
    return errors_copy_required(
        state,
        "%s: the memory cannot be shared with Metal: %s; asarray(x, copy=True) copies it.",
        function,
        reason->code == COPY_METAL ? bridge_status_text((bridge_status)reason->a)
                                   : dlpack_fault_text(reason).text);
}

PyObject *
host_memory_import(md_state *state, const char *function, const host_items *items,
                   storage_owner *owner, const device_record *device, int copy)
{
    if (copy != 1 && items->is_empty) {
        return share_nothing(state, function, items, device);
    }
    if (copy != 1) {
        dlpack_fault reason;
        PyObject *array = share_items(state, items, owner, device, &reason);
        if (array != NULL || PyErr_Occurred()) {
            owner->object = NULL;
            return array;
        }
        if (copy == 0) {
            return refuse(state, function, &reason);
        }
        timeline_because((unsigned)TIMELINE_FAULT + reason.code);
    }
    return copy_items(state, function, items, device);
}

PyObject *
host_memory_import_view(md_state *state, const char *function, const Py_buffer *view,
                        PyObject *owner, host_items *items, const device_record *device,
                        int copy)
{
    items->is_empty = layout_is_empty(items->layout);
    items->is_readonly = view->readonly;
    items->is_honest = view->readonly || array_numpy_is_honest(view->obj);
    storage_owner kept = owners_of_object(state, Py_NewRef(owner));
    PyObject *array = host_memory_import(state, function, items, &kept, device, copy);
    Py_XDECREF((PyObject *)kept.object);
    return array;
}

/* ---- multiprocessing's SharedMemory ---- */

int
shared_memory_check(md_state *Py_UNUSED(state), PyObject *x)
{
    return attribute_is_of(x, "multiprocessing.shared_memory", "SharedMemory");
}

PyObject *
host_memory_keep(const char *function, PyObject *x, const Py_buffer **view)
{
    if (PyObject_CheckBuffer(x)) {
        return view_keep(x, view);
    }
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
