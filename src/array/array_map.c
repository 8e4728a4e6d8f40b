/* array_map.c: see array_map.h. */
#include "array/array_map.h"

#include "arithmetic/dtype_bits.h"
#include "python/errors.h"
#include "python/waiting.h"

/* The bytes of the buffer that the items lie in. */
static void
span_of(const ArrayObject *self, int64_t *first, int64_t *nbytes)
{
    *first = self->byte_offset;
    *nbytes = 0;
    if (self->nitems == 0) {
        return;
    }
    strided_layout layout;
    int64_t begin, end;
    array_get_layout(self, &layout);
    /* in bounds */
    (void)bits_byte_span(&layout, array_item_bits(self), self->first_bit, &begin, &end);
    *first += begin;
    *nbytes = end - begin;
}

int
array_wait(const char *function, ArrayObject *self, map_access access)
{
    metal_storage *storage = array_storage(self);
    bool is_for_writing = access != MAP_READ;
    if (!storage_is_quiet() && waiting_for_busy_storage(state_of((PyObject *)self), function,
                                                        storage, is_for_writing) < 0) {
        return -1;
    }
    if (storage->mode != BRIDGE_MANAGED) { /* one memory: save the GIL's hand-over */
        WATCH_HOST_ACCESS(storage->handle, storage->nbytes, is_for_writing);
        return 0;
    }
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = is_for_writing ? storage_begin_host_write(storage, &error)
                            : storage_begin_host_read(storage, &error);
    Py_END_ALLOW_THREADS
    return errors_check_status(state_of((PyObject *)self), function, status, &error, 0);
}

/* Are there bytes in the span that belong to no item of the array? */
static bool
has_gaps(const ArrayObject *self, int64_t nbytes)
{
    strided_layout layout;
    array_get_layout(self, &layout);
    return nbytes != array_nbytes(self) || !dtype_is_whole_bytes(self->dtype) ||
           !layout_is_unique(&layout);
}

static int
map_private(const char *function, ArrayObject *self, array_mapping *out)
{
    char *staged;
    bool is_read = out->access != MAP_OVERWRITE || has_gaps(self, out->nbytes);
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_stage_open(array_storage(self), (size_t)out->first_bytes,
                                (size_t)out->nbytes, is_read, &out->stage, &staged, &error);
    Py_END_ALLOW_THREADS
    if (errors_check_status(state_of((PyObject *)self), function, status, &error,
                            (uint64_t)out->nbytes) < 0) {
        return -1;
    }
    out->origin = staged + (self->byte_offset - out->first_bytes);
    return 0;
}

int
array_map(const char *function, ArrayObject *self, map_access access, array_mapping *out)
{
    *out = (array_mapping){.access = access};
    if (access != MAP_READ && self->is_readonly) {
        PyErr_Format(PyExc_ValueError, "%s: the array is read-only; write to a copy() of it.",
                     function);
        return -1;
    }
    span_of(self, &out->first_bytes, &out->nbytes);
    if (out->nbytes == 0) {
        return 0;
    }
    if (array_wait(function, self, access) < 0) {
        return -1;
    }
    char *address = array_storage(self)->address;
    if (address == NULL) {
        return map_private(function, self, out);
    }
    out->origin = address + self->byte_offset;
    return 0;
}

int
array_unmap(const char *function, ArrayObject *self, array_mapping *mapping, bool is_written)
{
    metal_storage *storage = array_storage(self);
    bridge_error error = {0};
    bridge_status status = BRIDGE_OK;
    if (is_written && mapping->nbytes > 0) {
        if (mapping->stage == NULL) {
            storage_end_host_write(storage, (size_t)mapping->first_bytes,
                                   (size_t)mapping->nbytes);
        }
        else {
            Py_BEGIN_ALLOW_THREADS
            status = storage_stage_flush(storage, (size_t)mapping->first_bytes,
                                         (size_t)mapping->nbytes, mapping->stage, &error);
            Py_END_ALLOW_THREADS
        }
    }
    storage_release(mapping->stage);
    mapping->stage = NULL;
    return errors_check_status(state_of((PyObject *)self), function, status, &error,
                               (uint64_t)mapping->nbytes);
}
