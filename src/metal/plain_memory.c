/* plain_memory.c: see plain_memory.h. */
#include "metal/plain_memory.h"

#include "metal/pages.h"

metal_storage *
plain_memory_find(const void *address, size_t nbytes)
{
    size_t offset = 0;
    metal_storage *found = pages_hold(address, nbytes, &offset);
    if (found != NULL && !pages_fit(found->nbytes, offset, nbytes)) {
        storage_release(found);
        return NULL;
    }
    return found;
}

void *
plain_memory_new(size_t nbytes)
{
    metal_storage *storage;
    if (bridge_is_forked() || devices_count() == 0 ||
        storage_new(devices_get(0), nbytes, BRIDGE_SHARED, &storage) != BRIDGE_OK) {
        return NULL;
    }
    if (storage->address == NULL) {
        storage_release(storage);
        return NULL;
    }
    __atomic_store_n(&storage->pages.is_plain, true, __ATOMIC_RELAXED);
    return storage->address;
}

bool
plain_memory_free(void *address)
{
    metal_storage *found = pages_take_plain(address);
    storage_release(found);
    return found != NULL;
}
