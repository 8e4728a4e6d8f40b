/* storage_bytes.c: see storage_bytes.h. */
#include "metal/storage_bytes.h"

#include <string.h>

#include "metal/staging.h"
#include "metal/storage_sharing.h"

/* ---- private storage: through a stage ---- */

static bridge_status
read_private(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
             bridge_error *error)
{
    staged_range range = {storage, offset_bytes, nbytes, NULL, NULL};
    bridge_status status = staging_open(&range, true, error);
    if (status == BRIDGE_OK) {
        memcpy(out, range.address, nbytes);
    }
    staging_close(&range);
    return status;
}

/* Write `bytes`, or `value` everywhere where that is NULL. */
static bridge_status
write_private(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
              uint8_t value, bridge_error *error)
{
    staged_range range = {storage, offset_bytes, nbytes, NULL, NULL};
    bridge_status status = staging_open(&range, false, error);
    if (status == BRIDGE_OK) {
        if (bytes != NULL) {
            memcpy(range.address, bytes, nbytes);
        }
        else {
            memset(range.address, value, nbytes);
        }
        status = staging_flush(&range, error);
    }
    staging_close(&range);
    return status;
}

/* ---- every storage mode ---- */

bridge_status
storage_download(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
                 bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address == NULL) {
        return read_private(storage, offset_bytes, nbytes, out, error);
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
        return write_private(storage, offset_bytes, nbytes, bytes, 0, error);
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
    if ((offset_bytes | nbytes) % STORAGE_UNIT != 0) {
        return write_private(storage, offset_bytes, nbytes, NULL, value, error);
    }
    bridge_status status = storage_begin_host_write(storage, error);
    if (status != BRIDGE_OK) {
        return status;
    }
    return bridge_fill_and_wait(storage->device->queue, storage->handle, offset_bytes, nbytes,
                                value, error);
}
