/* array_map.c: see array_map.h. */
#include "array/array_map.h"

#include "arithmetic/dtype_bits.h"
#include "metal/staging.h"
#include "metal/storage_sharing.h"
#include "python/errors.h"
#include "streams/wait_rule.h"

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

/* Are there bytes in the span that belong to no item of the array? */
static bool
has_gaps(const ArrayObject *self, int64_t nbytes)
{
    strided_layout layout;
    array_get_layout(self, &layout);
    return nbytes != array_nbytes(self) || !dtype_is_whole_bytes(self->dtype) ||
           !layout_is_unique(&layout);
}

static staged_range
range_of(const ArrayObject *self, const array_mapping *mapping)
{
    return (staged_range){.storage = array_storage(self),
                          .offset_bytes = (size_t)mapping->first_bytes,
                          .nbytes = (size_t)mapping->nbytes,
                          .stage = mapping->stage};
}

static int
map_private(const char *function, ArrayObject *self, array_mapping *out)
{
    staged_range range = range_of(self, out);
    bool is_read = out->access != MAP_OVERWRITE || has_gaps(self, out->nbytes);
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = staging_open(&range, is_read, &error);
    Py_END_ALLOW_THREADS
    if (errors_check_status(state_of((PyObject *)self), function, status, &error,
                            range.nbytes) < 0) {
        return -1;
    }
    out->stage = range.stage;
    out->origin = range.address + (self->byte_offset - out->first_bytes);
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
    metal_storage *storage = array_storage(self);
    if (wait_rule_for_cpu((PyObject *)self, function, storage, access != MAP_READ) < 0) {
        return -1;
    }
    char *address = storage->address;
    if (address == NULL) {
        return map_private(function, self, out);
    }
    out->origin = address + self->byte_offset;
    return 0;
}

/* What was written to a stage goes back to private storage. */
static int
flush_private(const char *function, ArrayObject *self, const array_mapping *mapping)
{
    staged_range range = range_of(self, mapping);
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = staging_flush(&range, &error);
    Py_END_ALLOW_THREADS
    return errors_check_status(state_of((PyObject *)self), function, status, &error,
                               range.nbytes);
}

int
array_unmap(const char *function, ArrayObject *self, array_mapping *mapping, bool is_written)
{
    int result = 0;
    if (is_written && mapping->stage != NULL) {
        result = flush_private(function, self, mapping);
    }
    else if (is_written && mapping->nbytes > 0) {
        storage_end_host_write(array_storage(self), (size_t)mapping->first_bytes,
                               (size_t)mapping->nbytes);
    }
    storage_release(mapping->stage);
    mapping->stage = NULL;
    return result;
}
