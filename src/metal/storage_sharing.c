/* storage_sharing.c: see storage_sharing.h. */
#include "metal/storage_sharing.h"

#include "metal/readonly.h"

static bool
is_managed(const metal_storage *storage)
{
    return storage->mode == BRIDGE_MANAGED && storage->handle != NULL;
}

/* The one that counts for all storages over the same buffer of ours. */
static metal_storage *
root_of(metal_storage *storage)
{
    while (storage->parent != NULL) {
        storage = storage->parent;
    }
    return storage;
}

static bool
has_host_writers(metal_storage *storage)
{
    return __atomic_load_n(&root_of(storage)->sharing.host_writers, __ATOMIC_ACQUIRE) != 0;
}

/* Make the CPU's copy of managed storage current; nothing of ours is in flight. */
static bridge_status
fetch_gpu_copy(metal_storage *storage, bridge_error *error)
{
    metal_storage *root = root_of(storage);
    /* While a writable host view is out, the CPU's copy leads: synchronising for GPU work that
     * we do not know of would undo what was written through the view. */
    bool may_be_written = __atomic_load_n(&storage->sharing.is_exported, __ATOMIC_ACQUIRE) &&
                          !has_host_writers(storage);
    if (!may_be_written && !__atomic_load_n(&root->sharing.gpu_wrote, __ATOMIC_ACQUIRE)) {
        return BRIDGE_OK;
    }
    bridge_status status =
        bridge_synchronize_and_wait(storage->device->queue, storage->handle, error);
    if (status == BRIDGE_OK) {
        __atomic_store_n(&root->sharing.gpu_wrote, false, __ATOMIC_RELEASE);
    }
    return status;
}

static bridge_status
begin_host_access(metal_storage *storage, bool is_for_writing, bridge_error *error)
{
    bridge_status status = BRIDGE_OK;
    if (!tracking_is_quiet()) {
        status = tracking_wait(storage->handle, is_for_writing, error);
    }
    if (status == BRIDGE_OK && is_managed(storage)) {
        status = fetch_gpu_copy(storage, error);
    }
    if (status == BRIDGE_OK) {
        WATCH_HOST_ACCESS(storage->handle, storage->nbytes, is_for_writing);
    }
    return status;
}

bridge_status
storage_begin_host_read(metal_storage *storage, bridge_error *error)
{
    return begin_host_access(storage, false, error);
}

bridge_status
storage_begin_host_write(metal_storage *storage, bridge_error *error)
{
    return begin_host_access(storage, true, error);
}

void
storage_end_host_write(metal_storage *storage, size_t offset_bytes, size_t nbytes)
{
    if (is_managed(storage) && nbytes > 0) {
        bridge_buffer_did_modify(storage->handle, offset_bytes, nbytes);
    }
}

void
storage_open_host_view(metal_storage *storage)
{
    if (!is_managed(storage)) {
        return; /* one memory: nothing to keep equal */
    }
    (void)__atomic_fetch_add(&root_of(storage)->sharing.host_writers, 1, __ATOMIC_ACQ_REL);
}

void
storage_flush_host_views_locked(metal_storage *storage)
{
    if (is_managed(storage) && has_host_writers(storage) &&
        !tracking_has_write_locked(storage->handle)) {
        bridge_buffer_did_modify(storage->handle, 0, storage->nbytes);
    }
}

static void
flush_host_views(metal_storage *storage)
{
    if (is_managed(storage)) {
        tracking_lock(); /* no write may be submitted between the look and the flush */
        storage_flush_host_views_locked(storage);
        tracking_unlock();
    }
}

void
storage_close_host_view(metal_storage *storage)
{
    if (is_managed(storage)) {
        flush_host_views(storage);
        (void)__atomic_fetch_sub(&root_of(storage)->sharing.host_writers, 1, __ATOMIC_ACQ_REL);
    }
}

bool
storage_note_gpu_write(metal_storage *storage)
{
    if (!is_managed(storage)) {
        return false;
    }
    if (has_host_writers(storage)) {
        return true;
    }
    __atomic_store_n(&root_of(storage)->sharing.gpu_wrote, true, __ATOMIC_RELEASE);
    return false;
}

void
storage_publish(metal_storage *storage)
{
    flush_host_views(storage);
    readonly_publish(storage);
    /* the storage that owns the MTLBuffer must not go back to the pool while it is in use */
    for (; storage != NULL; storage = storage->parent) {
        if (!__atomic_load_n(&storage->sharing.is_exported, __ATOMIC_RELAXED)) {
            __atomic_store_n(&storage->sharing.is_exported, true, __ATOMIC_RELEASE);
        }
    }
}
