/* array_map.c: see array_map.h. */
#include "array_map.h"

#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "errors.h"

/* From here on the GIL is worth releasing, in bytes. */
#define LARGE_COPY 65536

/* The bytes of the buffer that the items lie in. */
static void
span_of(const ArrayObject *self, int64_t *first, int64_t *nbytes)
{
    *first = self->byte_offset;
    *nbytes = 0;
    if (self->nitems == 0) {
        return;
    }
    if (!dtype_is_whole_bytes(self->dtype)) {
        *nbytes = array_nbytes(self);
        return;
    }
    strided_layout layout;
    int64_t lowest, highest;
    array_get_layout(self, &layout);
    layout_offset_bounds(&layout, &lowest, &highest);
    *first += lowest * layout.itemsize;
    *nbytes = (highest - lowest + 1) * layout.itemsize;
}

int
array_wait(const char *function, ArrayObject *self)
{
    metal_storage *storage = array_storage(self);
    if (storage->mode == BRIDGE_SHARED) { /* nothing can be pending: save the GIL's hand-over */
        return 0;
    }
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_begin_host_read(storage, &error);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state_of((PyObject *)self), function, status, &error, 0);
        return -1;
    }
    return 0;
}

static int
map_private(const char *function, ArrayObject *self, array_mapping *out)
{
    out->temporary = malloc((size_t)out->nbytes);
    if (out->temporary == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    /* Also for writing: the items may have gaps between them, whose bytes go back unchanged. */
    bridge_error error = {0};
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = storage_download(array_storage(self), (size_t)out->first_bytes,
                              (size_t)out->nbytes, out->temporary, &error);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        free(out->temporary);
        out->temporary = NULL;
        (void)errors_from_bridge(state_of((PyObject *)self), function, status, &error,
                                 (uint64_t)out->nbytes);
        return -1;
    }
    out->origin = out->temporary + (self->byte_offset - out->first_bytes);
    return 0;
}

int
array_map(const char *function, ArrayObject *self, map_access access, array_mapping *out)
{
    *out = (array_mapping){.access = access};
    if (access == MAP_WRITE && self->is_readonly) {
        PyErr_Format(PyExc_ValueError, "%s: the array is read-only; write to a copy() of it.",
                     function);
        return -1;
    }
    span_of(self, &out->first_bytes, &out->nbytes);
    if (out->nbytes == 0) {
        return 0;
    }
    char *address = array_storage(self)->address;
    if (address == NULL) {
        return map_private(function, self, out);
    }
    out->origin = address + self->byte_offset;
    return array_wait(function, self);
}

int
array_unmap(const char *function, ArrayObject *self, array_mapping *mapping, bool is_written)
{
    metal_storage *storage = array_storage(self);
    bridge_error error = {0};
    bridge_status status = BRIDGE_OK;
    if (is_written && mapping->nbytes > 0) {
        if (mapping->temporary == NULL) {
            storage_end_host_write(storage, (size_t)mapping->first_bytes,
                                   (size_t)mapping->nbytes);
        }
        else {
            Py_BEGIN_ALLOW_THREADS
            status = storage_upload(storage, (size_t)mapping->first_bytes,
                                    (size_t)mapping->nbytes, mapping->temporary, &error);
            Py_END_ALLOW_THREADS
        }
    }
    free(mapping->temporary);
    mapping->temporary = NULL;
    if (status != BRIDGE_OK) {
        (void)errors_from_bridge(state_of((PyObject *)self), function, status, &error,
                                 (uint64_t)mapping->nbytes);
        return -1;
    }
    return 0;
}

/* ---- copies between arrays ---- */

/* Packed sub-byte items move as bytes: both sides are compact and begin on a byte. */
static void
layout_for_copy(const ArrayObject *self, strided_layout *out)
{
    if (dtype_is_whole_bytes(self->dtype)) {
        array_get_layout(self, out);
        return;
    }
    *out = (strided_layout){.ndim = 1, .itemsize = 1};
    out->shape[0] = array_nbytes(self);
    out->strides[0] = 1;
}

static bool
copy_mapped(ArrayObject *dst, char *dst_origin, ArrayObject *src, const char *src_origin)
{
    strided_layout to, from;
    layout_for_copy(dst, &to);
    layout_for_copy(src, &from);
    if (array_nbytes(dst) < LARGE_COPY) {
        return copy_strided(&to, dst_origin, &from, src_origin);
    }
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = copy_strided(&to, dst_origin, &from, src_origin);
    Py_END_ALLOW_THREADS
    return done;
}

int
array_copy_items(const char *function, ArrayObject *dst, ArrayObject *src)
{
    array_mapping to, from;
    if (array_map(function, src, MAP_READ, &from) < 0) {
        return -1;
    }
    if (array_map(function, dst, MAP_WRITE, &to) < 0) {
        (void)array_unmap(function, src, &from, false);
        return -1;
    }
    bool done = to.nbytes == 0 || copy_mapped(dst, to.origin, src, from.origin);
    (void)array_unmap(function, src, &from, false);
    int result = array_unmap(function, dst, &to, done);
    if (!done) {
        PyErr_NoMemory();
        return -1;
    }
    return result;
}
