/* host_memory.c: see host_memory.h. */
#include "host_memory.h"

#include "copy.h"
#include "device.h"
#include "errors.h"
#include "owners.h"

const device_record *
host_memory_device(md_state *state, const char *function, const import_request *request)
{
    return request->device != NULL ? request->device : device_convert(state, function, NULL);
}

/* ---- copying ---- */

PyObject *
host_memory_copy(md_state *state, const char *function, const host_items *items,
                 const device_record *device)
{
    PyObject *op = array_allocate(state, function, device, BRIDGE_SHARED, items->layout->ndim,
                                  items->layout->shape, items->dtype, 'C');
    if (op == NULL || array_cast(op)->nitems == 0) {
        return op;
    }
    char *origin = array_storage(array_cast(op))->address;
    if (!dtype_is_whole_bytes(items->dtype)) { /* packed and compact: the bytes themselves */
        memcpy(origin, items->address, (size_t)array_nbytes(array_cast(op)));
        return op;
    }
    strided_layout dense;
    bool is_done;
    array_get_layout(array_cast(op), &dense);
    Py_BEGIN_ALLOW_THREADS
    is_done = copy_strided(&dense, origin, items->layout, items->address);
    Py_END_ALLOW_THREADS
    if (!is_done) {
        Py_CLEAR(op);
        PyErr_NoMemory();
    }
    return op;
}

/* ---- sharing ---- */

/* The bytes that the items lie in, relative to element 0. */
static void
measure(const host_items *items, int64_t *first, int64_t *end)
{
    int64_t lowest, highest;
    if (!dtype_is_whole_bytes(items->dtype)) {
        *first = 0;
        (void)dtype_packed_nbytes(items->dtype, layout_volume(items->layout), end);
        return;
    }
    layout_offset_bounds(items->layout, &lowest, &highest);
    *first = lowest * items->layout->itemsize;
    *end = (highest + 1) * items->layout->itemsize;
}

PyObject *
host_memory_share(md_state *state, const host_items *items, const storage_owner *owner,
                  const device_record *device, const char **why)
{
    metal_storage *storage;
    size_t offset;
    int64_t first, end;
    bridge_status status;
    *why = NULL;
    if ((uintptr_t)items->address % (uintptr_t)dtype_alignment(items->dtype) != 0) {
        *why = "the address of its first item is not a multiple of the element's alignment";
        return NULL;
    }
    measure(items, &first, &end);
    Py_BEGIN_ALLOW_THREADS
    status = storage_wrap_host(device, items->address + first, (size_t)(end - first), owner,
                               &storage, &offset);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        *why = bridge_status_text(status);
        return NULL;
    }
    storage->is_readonly = items->is_readonly;
    PyObject *buffer = buffer_from_storage(state, storage);
    if (buffer == NULL) {
        return NULL;
    }
    PyObject *array = array_new(state, buffer, (int64_t)offset - first, items->layout,
                                items->dtype, items->is_readonly);
    Py_DECREF(buffer);
    return array;
}

PyObject *
host_memory_refuse(md_state *state, const char *function, const char *why)
{
    return errors_copy_required(state,
                                "%s: the memory cannot be shared with Metal: %s; a copy is needed "
                                "and copy=False forbids it.",
                                function, why);
}

PyObject *
host_memory_import(md_state *state, const char *function, const host_items *items, PyObject *owner,
                   const import_request *request)
{
    const device_record *device = host_memory_device(state, function, request);
    if (device == NULL) {
        return NULL;
    }
    if (request->copy != 1 && layout_volume(items->layout) > 0) {
        const char *why;
        storage_owner record = owners_of_object(state, Py_NewRef(owner));
        PyObject *array = host_memory_share(state, items, &record, device, &why);
        if (array != NULL || PyErr_Occurred()) {
            return array;
        }
        Py_DECREF(owner);
        if (request->copy == 0) {
            return host_memory_refuse(state, function, why);
        }
    }
    return host_memory_copy(state, function, items, device);
}
