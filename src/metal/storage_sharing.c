/* storage_sharing.c: see storage_sharing.h. */
#include "metal/storage_sharing.h"

#include "metal/readonly.h"

bool
storage_has_host_writers(metal_storage *storage)
{
    return __atomic_load_n(&storage_root(storage)->sharing.host_writers, __ATOMIC_ACQUIRE) != 0;
}

bool
storage_is_exported(metal_storage *storage)
{
    return __atomic_load_n(&storage_root(storage)->sharing.is_exported, __ATOMIC_ACQUIRE);
}

/* ---- managed: the GPU's copy to the CPU's ---- */

bool
storage_has_host_views_locked(metal_storage *storage)
{
    return storage_is_managed(storage) && (storage_root(storage)->sharing.host_readers > 0 ||
                                           storage_has_host_writers(storage));
}

uint64_t
storage_count_gpu_writes(metal_storage *storage)
{
    return __atomic_load_n(&storage_root(storage)->sharing.gpu_writes, __ATOMIC_ACQUIRE);
}

uint64_t
storage_note_gpu_write_locked(metal_storage *storage)
{
    if (!storage_is_managed(storage)) {
        return 0;
    }
    return __atomic_add_fetch(&storage_root(storage)->sharing.gpu_writes, 1, __ATOMIC_RELEASE);
}

void
storage_note_fetched(metal_storage *storage, uint64_t number)
{
    uint64_t *fetched = &storage_root(storage)->sharing.fetched;
    uint64_t before = __atomic_load_n(fetched, __ATOMIC_RELAXED);
    while (before < number &&
           !__atomic_compare_exchange_n(fetched, &before, number, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

bool
storage_has_fetched(metal_storage *storage, uint64_t number)
{
    bool is_fetched =
        __atomic_load_n(&storage_root(storage)->sharing.fetched, __ATOMIC_ACQUIRE) >= number;
    if (is_fetched) {
        WATCH_LOOK_UP(storage->handle);
    }
    return is_fetched;
}

/* ---- managed: the CPU's copy to the GPU's ---- */

void
storage_flush_host_views_locked(metal_storage *storage)
{
    bool is_current = storage_has_fetched(storage, storage_count_gpu_writes(storage));
    if (storage_is_managed(storage) && storage_has_host_writers(storage) && is_current) {
        bridge_buffer_did_modify(storage->handle, 0, storage->nbytes);
    }
}

void
storage_count_views_locked(metal_storage *storage, int readers, int writers)
{
    storage_sharing *sharing = &storage_root(storage)->sharing;
    sharing->host_readers += (uint32_t)readers;
    (void)__atomic_add_fetch(&sharing->host_writers, (uint32_t)writers, __ATOMIC_ACQ_REL);
}

void
storage_close_host_view(metal_storage *storage, bool is_readonly)
{
    if (!storage_is_managed(storage)) {
        return;
    }
    tracking_lock(); /* no write may be submitted between the look and the flush */
    if (is_readonly) {
        storage_count_views_locked(storage, -1, 0);
    }
    else {
        storage_flush_host_views_locked(storage);
        storage_count_views_locked(storage, 0, -1);
    }
    tracking_unlock();
}

void
storage_publish(metal_storage *storage)
{
    if (storage_is_managed(storage)) {
        tracking_lock();
        storage_flush_host_views_locked(storage);
        tracking_unlock();
    }
    readonly_publish(storage);
    /* the storage that owns the MTLBuffer must not go back to the pool while it is in use */
    for (; storage != NULL; storage = storage->parent) {
        if (!__atomic_load_n(&storage->sharing.is_exported, __ATOMIC_RELAXED)) {
            __atomic_store_n(&storage->sharing.is_exported, true, __ATOMIC_RELEASE);
        }
    }
}
