/* staging.c: see staging.h. */
#include "metal/staging.h"

#include <string.h>

#include "copy/copy.h"
#include "metal/tracking.h"

/* ---- a range of bytes ---- */

/* Submit nothing more, and wait for what uses the buffer. */
static bridge_status
finish(const metal_storage *storage, bridge_status submitted, bridge_error *error)
{
    return submitted == BRIDGE_OK ? tracking_wait(storage->handle, true, error) : submitted;
}

static metal_stream *
stream_of(const metal_storage *storage, bridge_status *status)
{
    metal_stream *stream = stream_default(storage->device);
    *status = stream == NULL ? stream_default_status() : BRIDGE_OK;
    return stream;
}

static bridge_status
fill_private(metal_storage *storage, size_t offset_bytes, size_t nbytes, uint8_t byte,
             bridge_error *error)
{
    bridge_status status;
    uint64_t value;
    metal_stream *stream = stream_of(storage, &status);
    if (status == BRIDGE_OK) {
        status = work_fill(stream, storage, offset_bytes, nbytes, byte, &value);
    }
    return finish(storage, status, error);
}

/* Between the storage and the stage: exactly these items; offset 0 of the layout is at
 * `offset_bytes` of the storage. */
static bridge_status
move_items(const staged_range *range, const strided_layout *layout, int64_t offset_bytes,
           bool is_read, bridge_error *error)
{
    bridge_status status;
    metal_stream *stream = stream_of(range->storage, &status);
    if (status != BRIDGE_OK) {
        return status;
    }
    uint64_t value;
    timeline_because(TIMELINE_STAGED);
    work_items there = {range->storage, offset_bytes, layout};
    work_items here = {range->stage, offset_bytes - (int64_t)range->offset_bytes, layout};
    status = is_read ? work_items_copy(stream, &here, &there, &value)
                     : work_items_copy(stream, &there, &here, &value);
    return finish(is_read ? range->stage : range->storage, status, error);
}

static bridge_status
move_bytes(const staged_range *range, bool is_read, bridge_error *error)
{
    layout_fault fault;
    strided_layout bytes;
    int64_t nbytes = (int64_t)range->nbytes;
    (void)layout_set_dense(&bytes, 1, &nbytes, 1, 'C', &fault); /* one axis of a buffer fits */
    return move_items(range, &bytes, (int64_t)range->offset_bytes, is_read, error);
}

bridge_status
staging_open(staged_range *range, bool is_read, bridge_error *error)
{
    bridge_status status =
        storage_new(range->storage->device, range->nbytes, BRIDGE_SHARED, &range->stage);
    if (status == BRIDGE_OK && is_read) {
        status = move_bytes(range, true, error);
    }
    if (status != BRIDGE_OK) {
        storage_release(range->stage);
        range->stage = NULL;
    }
    return status;
}

bridge_status
staging_flush(const staged_range *range, bridge_error *error)
{
    return move_bytes(range, false, error);
}

bridge_status
staging_flush_items(const staged_range *range, const strided_layout *layout,
                    int64_t offset_bytes, bridge_error *error)
{
    return move_items(range, layout, offset_bytes, false, error);
}

/* ---- bytes in and out ---- */

/* One of three transfers: read to `out`, write `bytes`, or write `value` everywhere. */
typedef struct transfer {
    void *out;
    const void *bytes;
    uint8_t value;
} transfer;

static void
move(char *address, size_t nbytes, const transfer *what)
{
    if (what->out != NULL) {
        memmove(what->out, address, nbytes);
    }
    else if (what->bytes != NULL) {
        memmove(address, what->bytes, nbytes);
    }
    else {
        memset(address, what->value, nbytes);
    }
}

static bridge_status
move_range(metal_storage *storage, size_t offset_bytes, size_t nbytes, const transfer *what,
           bridge_error *error)
{
    bool is_read = what->out != NULL;
    if (nbytes == 0) {
        return BRIDGE_OK;
    }
    if (storage->address != NULL) {
        bridge_status status = tracking_wait(storage->handle, !is_read, error);
        if (status == BRIDGE_OK) {
            WATCH_HOST_ACCESS(storage->handle, offset_bytes, nbytes, !is_read);
            move(storage->address + offset_bytes, nbytes, what);
        }
        return status;
    }
    staged_range range = {storage, offset_bytes, nbytes, NULL};
    bridge_status status = staging_open(&range, is_read, error);
    if (status == BRIDGE_OK) {
        move(range.stage->address, nbytes, what);
        status = is_read ? BRIDGE_OK : staging_flush(&range, error);
    }
    storage_release(range.stage);
    return status;
}

bridge_status
staging_get_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes, void *out,
                  bridge_error *error)
{
    return move_range(storage, offset_bytes, nbytes, &(transfer){.out = out}, error);
}

bridge_status
staging_put_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes, const void *bytes,
                  bridge_error *error)
{
    return move_range(storage, offset_bytes, nbytes, &(transfer){.bytes = bytes}, error);
}

bridge_status
staging_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes, uint8_t value,
                  bridge_error *error)
{
    bool is_whole = nbytes != 0 && (offset_bytes | nbytes) % STORAGE_UNIT == 0;
    if (is_whole && storage->mode == BRIDGE_PRIVATE) {
        return fill_private(storage, offset_bytes, nbytes, value, error);
    }
    return move_range(storage, offset_bytes, nbytes, &(transfer){.value = value}, error);
}
