/* storage_bytes.c: bytes in and out of a storage, whatever its mode; see storage.h.
 *
 * Owns:    a shared staging buffer while a call lasts, where the storage is private.
 * Threads: any, without the GIL; every function waits.
 */
#include "metal/storage.h"

#include <stdlib.h>
#include <string.h>

static size_t
round_down(size_t value, size_t unit)
{
    return value / unit * unit;
}

static size_t
round_up(size_t value, size_t unit)
{
    return round_down(value + unit - 1, unit);
}

/* A range widened to what a blit takes: offsets and sizes in whole units. */
typedef struct blit_range {
    size_t offset_bytes, nbytes;
} blit_range;

/* BRIDGE_ODD_END: a foreign buffer's length is no multiple of 4, and the range holds its last
 * bytes. */
static bridge_status
widen(const metal_storage *storage, size_t offset_bytes, size_t nbytes, blit_range *out)
{
    size_t first = round_down(offset_bytes, STORAGE_UNIT);
    size_t last = round_up(offset_bytes + nbytes, STORAGE_UNIT);
    *out = (blit_range){first, last - first};
    return last > bridge_buffer_nbytes(storage->handle) ? BRIDGE_ODD_END : BRIDGE_OK;
}

/* ---- staging ---- */

static bridge_status
blit_out(metal_storage *storage, blit_range range, metal_storage *stage, bridge_error *error)
{
    return bridge_copy_and_wait(storage->device->queue, storage->handle, range.offset_bytes,
                                stage->handle, 0, range.nbytes, error);
}

bridge_status
storage_stage_open(metal_storage *storage, size_t offset_bytes, size_t nbytes, bool is_read,
                   metal_storage **stage, char **address, bridge_error *error)
{
    blit_range range;
    *stage = NULL;
    *address = NULL;
    bridge_status status = storage_begin_host_read(storage, error);
    if (status == BRIDGE_OK) {
        status = widen(storage, offset_bytes, nbytes, &range);
    }
    if (status == BRIDGE_OK) {
        status = storage_new(storage->device, range.nbytes, BRIDGE_SHARED, stage);
    }
    /* the neighbours' bytes go back as they are */
    if (status == BRIDGE_OK && (is_read || range.nbytes != nbytes)) {
        status = blit_out(storage, range, *stage, error);
    }
    if (status != BRIDGE_OK) {
        storage_release(*stage);
        *stage = NULL;
        return status;
    }
    *address = (*stage)->address + (offset_bytes - range.offset_bytes);
    return BRIDGE_OK;
}

bridge_status
storage_stage_flush(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                    metal_storage *stage, bridge_error *error)
{
    blit_range range;
    bridge_status status = storage_begin_host_write(storage, error);
    if (status == BRIDGE_OK) {
        status = widen(storage, offset_bytes, nbytes, &range);
    }
    if (status != BRIDGE_OK) {
        return status;
    }
    return bridge_copy_and_wait(storage->device->queue, stage->handle, 0, storage->handle,
                                range.offset_bytes, range.nbytes, error);
}

/* ---- bytes in and out ---- */

static bridge_status
download_private(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
                 bridge_error *error)
{
    metal_storage *stage;
    char *staged;
    bridge_status status =
        storage_stage_open(storage, offset_bytes, nbytes, true, &stage, &staged, error);
    if (status == BRIDGE_OK) {
        memcpy(out, staged, nbytes);
    }
    storage_release(stage);
    return status;
}

static bridge_status
upload_private(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
               bridge_error *error)
{
    metal_storage *stage;
    char *staged;
    bridge_status status =
        storage_stage_open(storage, offset_bytes, nbytes, false, &stage, &staged, error);
    if (status == BRIDGE_OK) {
        memcpy(staged, bytes, nbytes);
        status = storage_stage_flush(storage, offset_bytes, nbytes, stage, error);
    }
    storage_release(stage);
    return status;
}

bridge_status
storage_download(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
                 bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address == NULL) {
        return download_private(storage, offset_bytes, nbytes, out, error);
    }
    bridge_status status = storage_begin_host_read(storage, error);
    if (status == BRIDGE_OK) {
        memmove(out, storage->address + offset_bytes, nbytes);
    }
    return status;
}

bridge_status
storage_upload(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
               bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address == NULL) {
        return upload_private(storage, offset_bytes, nbytes, bytes, error);
    }
    /* The bytes around the range must be current too before the range is flushed. */
    bridge_status status = storage_begin_host_write(storage, error);
    if (status == BRIDGE_OK) {
        memmove(storage->address + offset_bytes, bytes, nbytes);
        storage_end_host_write(storage, offset_bytes, nbytes);
    }
    return status;
}

bridge_status
storage_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes, uint8_t value,
                  bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address != NULL) {
        bridge_status status = storage_begin_host_write(storage, error);
        if (status == BRIDGE_OK) {
            memset(storage->address + offset_bytes, value, nbytes);
            storage_end_host_write(storage, offset_bytes, nbytes);
        }
        return status;
    }
    size_t aligned = round_up(offset_bytes, STORAGE_UNIT);
    size_t end = round_down(offset_bytes + nbytes, STORAGE_UNIT);
    if (aligned != offset_bytes || end != offset_bytes + nbytes) {
        /* Not in whole blit units: by way of the CPU. */
        void *bytes = malloc(nbytes);
        if (bytes == NULL) {
            return BRIDGE_NO_MEMORY;
        }
        memset(bytes, value, nbytes);
        bridge_status status = upload_private(storage, offset_bytes, nbytes, bytes, error);
        free(bytes);
        return status;
    }
    bridge_status status = storage_begin_host_write(storage, error);
    if (status != BRIDGE_OK) {
        return status;
    }
    return bridge_fill_and_wait(storage->device->queue, storage->handle, offset_bytes, nbytes,
                                value, error);
}
