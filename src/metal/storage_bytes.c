/* storage_bytes.c: see storage_bytes.h. */
#include "metal/storage_bytes.h"

#include <string.h>

#include "metal/staging.h"
#include "metal/tracking.h"

bridge_status
storage_download(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
                 bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address != NULL) {
        bridge_status status = tracking_wait(storage->handle, false, error);
        if (status == BRIDGE_OK) {
            WATCH_HOST_ACCESS(storage->handle, offset_bytes, nbytes, false);
            memmove(out, storage->address + offset_bytes, nbytes);
        }
        return status;
    }
    staged_range range = {storage, offset_bytes, nbytes, NULL};
    bridge_status status = staging_open(&range, true, error);
    if (status == BRIDGE_OK) {
        memcpy(out, range.stage->address, nbytes);
    }
    staging_close(&range);
    return status;
}

/* Write `bytes`, or `value` everywhere where that is NULL. */
static void
put(char *address, size_t nbytes, const void *bytes, uint8_t value)
{
    if (bytes != NULL) {
        memmove(address, bytes, nbytes);
    }
    else {
        memset(address, value, nbytes);
    }
}

static bridge_status
write_range(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
            uint8_t value, bridge_error *error)
{
    if (storage->address != NULL) {
        bridge_status status = tracking_wait(storage->handle, true, error);
        if (status == BRIDGE_OK) {
            WATCH_HOST_ACCESS(storage->handle, offset_bytes, nbytes, true);
            put(storage->address + offset_bytes, nbytes, bytes, value);
        }
        return status;
    }
    staged_range range = {storage, offset_bytes, nbytes, NULL};
    bridge_status status = staging_open(&range, false, error);
    if (status == BRIDGE_OK) {
        put(range.stage->address, nbytes, bytes, value);
        status = staging_flush(&range, error);
    }
    staging_close(&range);
    return status;
}

bridge_status
storage_upload(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
               bridge_error *error)
{
    return nbytes == 0 ? BRIDGE_OK
                       : write_range(storage, offset_bytes, nbytes, bytes, 0, error);
}

bridge_status
storage_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes, uint8_t value,
                  bridge_error *error)
{
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    bool is_whole = (offset_bytes | nbytes) % STORAGE_UNIT == 0;
    if (is_whole && storage->mode == BRIDGE_PRIVATE) {
        return staging_fill(storage, offset_bytes, nbytes, value, error);
    }
    return write_range(storage, offset_bytes, nbytes, NULL, value, error);
}
