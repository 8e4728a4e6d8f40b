/* staging.c: see staging.h. */
#include "metal/staging.h"

#include "copy/copy.h"
#include "metal/tracking.h"

/* ---- items ---- */

bridge_status
staging_new(const device_record *device, work_items *items)
{
    const strided_layout *dense = items->layout;
    size_t nbytes = (size_t)(layout_volume(dense) * dense->itemsize); /* it fits: it is dense */
    items->offset_bytes = 0;
    return storage_new(device, nbytes, BRIDGE_SHARED, &items->storage);
}

bridge_status
staging_upload(metal_stream *stream, const work_items *dst, const work_items *stage,
               const strided_layout *src, const char *origin, uint64_t *value)
{
    /* It cannot fail: nobody else has the stage, so the two do not overlap. */
    (void)copy_strided(stage->layout, stage->storage->address, src, origin);
    return work_items_copy(stream, dst, stage, value);
}

bridge_status
staging_download(metal_stream *stream, const work_items *stage, const work_items *src,
                 uint64_t *value)
{
    return work_items_copy(stream, stage, src, value);
}

void
staging_deliver(const work_items *stage, const strided_layout *dst, char *origin)
{
    (void)copy_strided(dst, origin, stage->layout, stage->storage->address); /* as above */
}

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

bridge_status
staging_fill(metal_storage *storage, size_t offset_bytes, size_t nbytes, uint8_t byte,
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

/* Items of a range that lie in a stage. */
typedef struct staged_items {
    const strided_layout *layout;
    int64_t offset_bytes; /* of the storage: the layout's offset 0 */
} staged_items;

static int64_t
within_stage(const staged_range *range, const staged_items *items)
{
    return items->offset_bytes - (int64_t)range->offset_bytes;
}

/* Between the storage and the stage: exactly these items. */
static bridge_status
move_items(const staged_range *range, const staged_items *items, bool is_read,
           bridge_error *error)
{
    bridge_status status;
    metal_stream *stream = stream_of(range->storage, &status);
    if (status != BRIDGE_OK) {
        return status;
    }
    uint64_t value;
    work_items there = {range->storage, items->offset_bytes, items->layout};
    work_items here = {range->stage, within_stage(range, items), items->layout};
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
    staged_items items = {&bytes, (int64_t)range->offset_bytes};
    return move_items(range, &items, is_read, error);
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
        staging_close(range);
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
    staged_items items = {layout, offset_bytes};
    return move_items(range, &items, false, error);
}

void
staging_close(staged_range *range)
{
    storage_release(range->stage);
    range->stage = NULL;
}
