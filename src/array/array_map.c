/* array_map.c: see array_map.h. */
#include "array/array_map.h"

#include "arithmetic/dtype_bits.h"
#include "metal/staging.h"
#include "python/errors.h"

touched_bytes
array_touched_bytes(const ArrayObject *self)
{
    metal_storage *storage = array_storage(self);
    if (self->nitems == 0) {
        return (touched_bytes){storage, (size_t)self->byte_offset, 0};
    }
    strided_layout layout;
    int64_t begin, end;
    array_get_layout(self, &layout);
    /* in bounds */
    (void)bits_byte_span(&layout, array_item_bits(self), self->first_bit, &begin, &end);
    return (touched_bytes){storage, (size_t)(self->byte_offset + begin), (size_t)(end - begin)};
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
map_stage(const char *function, ArrayObject *self, array_mapping *out)
{
    touched_bytes bytes = array_touched_bytes(self);
    out->first_bytes = (int64_t)bytes.offset_bytes;
    out->nbytes = (int64_t)bytes.nbytes;
    staged_range range = range_of(self, out);
    /* packed items are written with the bits beside them */
    bool is_read = out->access != MAP_OVERWRITE || array_is_packed(self);
    bridge_error error;
    bridge_error_clear(&error);
    bridge_status status = WITHOUT_GIL(staging_open(&range, is_read, &error));
    if (errors_check_status(state_of((PyObject *)self), function, status, &error,
                            range.nbytes) < 0) {
        return -1;
    }
    out->stage = range.stage;
    out->origin = range.stage->address + (self->byte_offset - out->first_bytes);
    return 0;
}

int
array_map(const char *function, ArrayObject *self, map_access access, array_mapping *out)
{
    *out = (array_mapping){.access = access};
    if (access != MAP_READ && self->is_readonly) {
        return errors_raise(PyExc_ValueError,
                            "%s: the array is read-only; write to a copy() of it.", function);
    }
    metal_storage *storage = array_storage(self);
    if (self->nitems == 0) {
        return 0;
    }
    if (storage->mode == BRIDGE_PRIVATE) {
        return wait_rule_for_work(state_of((PyObject *)self), function, storage,
                                  access != MAP_READ) < 0
                   ? -1
                   : map_stage(function, self, out);
    }
    touched_bytes bytes = array_watched_bytes(self);
    if (wait_rule_for_cpu((PyObject *)self, function, &bytes, access != MAP_READ) < 0) {
        return -1;
    }
    out->origin = storage->address + self->byte_offset;
    return 0;
}

/* What was written to a stage goes back: the items alone, so that a thread that writes between
 * them loses nothing; packed ones with the bytes that they lie in. */
static int
flush_stage(const char *function, ArrayObject *self, const array_mapping *mapping)
{
    staged_range range = range_of(self, mapping);
    strided_layout layout;
    bridge_error error;
    bridge_error_clear(&error);
    array_get_layout(self, &layout);
    bridge_status status =
        WITHOUT_GIL(array_is_packed(self)
                        ? staging_flush(&range, &error)
                        : staging_flush_items(&range, &layout, self->byte_offset, &error));
    return errors_check_status(state_of((PyObject *)self), function, status, &error,
                               range.nbytes);
}

int
array_unmap(const char *function, ArrayObject *self, array_mapping *mapping, bool is_written)
{
    int result = 0;
    if (is_written && mapping->stage != NULL) {
        result = flush_stage(function, self, mapping);
    }
    storage_release(mapping->stage);
    mapping->stage = NULL;
    return result;
}
