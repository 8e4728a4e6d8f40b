/* staging.c: see staging.h. */
#include "metal/staging.h"

#include "copy/copy.h"
#include "metal/storage_sharing.h"

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
               const strided_layout *src, const char *origin, uint64_t *value,
               bridge_error *error)
{
    /* It cannot fail: nobody else has the stage, so the two do not overlap. */
    (void)copy_strided(stage->layout, stage->storage->address, src, origin);
    return work_items_copy(stream, dst, stage, value, error);
}

bridge_status
staging_download(metal_stream *stream, const work_items *stage, const work_items *src,
                 uint64_t *value, bridge_error *error)
{
    return work_items_copy(stream, stage, src, value, error);
}

void
staging_deliver(const work_items *stage, const strided_layout *dst, char *origin)
{
    (void)copy_strided(dst, origin, stage->layout, stage->storage->address); /* as above */
}

/* ---- bytes ---- */

static size_t
round_up(size_t nbytes)
{
    return (nbytes + STORAGE_UNIT - 1) / STORAGE_UNIT * STORAGE_UNIT;
}

/* A range widened to what a blit takes: offsets and sizes in whole units. */
typedef struct blit_range {
    size_t offset_bytes, nbytes;
} blit_range;

/* BRIDGE_ODD_END: a foreign buffer's length is no multiple of 4, and the range holds its last
 * bytes. */
static bridge_status
widen(const staged_range *range, blit_range *out)
{
    size_t first = range->offset_bytes / STORAGE_UNIT * STORAGE_UNIT;
    size_t last = round_up(range->offset_bytes + range->nbytes);
    *out = (blit_range){first, last - first};
    return last > bridge_buffer_nbytes(range->storage->handle) ? BRIDGE_ODD_END : BRIDGE_OK;
}

static bridge_status
read_range(const staged_range *range, const blit_range *blit, bridge_error *error)
{
    const metal_storage *from = range->storage;
    return bridge_copy_and_wait(from->device->queue, from->handle, blit->offset_bytes,
                                range->stage->handle, 0, blit->nbytes, error);
}

static bridge_status
write_range(const staged_range *range, const blit_range *blit, bridge_error *error)
{
    const metal_storage *to = range->storage;
    return bridge_copy_and_wait(to->device->queue, range->stage->handle, 0, to->handle,
                                blit->offset_bytes, blit->nbytes, error);
}

bridge_status
staging_open(staged_range *range, bool is_read, bridge_error *error)
{
    blit_range blit;
    range->stage = NULL;
    range->address = NULL;
    bridge_status status = storage_begin_host_read(range->storage, error);
    if (status == BRIDGE_OK) {
        status = widen(range, &blit);
    }
    if (status == BRIDGE_OK) {
        status = storage_new(range->storage->device, blit.nbytes, BRIDGE_SHARED, &range->stage);
    }
    /* the neighbours' bytes go back as they are */
    if (status == BRIDGE_OK && (is_read || blit.nbytes != range->nbytes)) {
        status = read_range(range, &blit, error);
    }
    if (status != BRIDGE_OK) {
        staging_close(range);
        return status;
    }
    range->address = range->stage->address + (range->offset_bytes - blit.offset_bytes);
    return BRIDGE_OK;
}

bridge_status
staging_flush(const staged_range *range, bridge_error *error)
{
    blit_range blit;
    bridge_status status = storage_begin_host_write(range->storage, error);
    if (status == BRIDGE_OK) {
        status = widen(range, &blit);
    }
    return status == BRIDGE_OK ? write_range(range, &blit, error) : status;
}

void
staging_close(staged_range *range)
{
    storage_release(range->stage);
    range->stage = NULL;
}
