/* readonly.c: see readonly.h.  A list: what is asked for is compared with every entry, some
 * nanoseconds each, and only files and constants are on it. */
#include "metal/readonly.h"

#include "metal/locks.h"

static metal_storage *newest; /* written behind the lock; read without for NULL */

bool
readonly_is_empty(void)
{
    return __atomic_load_n(&newest, __ATOMIC_ACQUIRE) == NULL;
}

static void
set_newest(metal_storage *storage)
{
    __atomic_store_n(&newest, storage, __ATOMIC_RELEASE);
}

void
readonly_publish(metal_storage *storage)
{
    bool is_root = storage->is_readonly && storage->parent == NULL && storage->handle != NULL;
    if (!is_root || __atomic_load_n(&storage->readonly.is_listed, __ATOMIC_ACQUIRE)) {
        return;
    }
    lock_take(LOCK_READONLY);
    if (!storage->readonly.is_listed) {
        storage->readonly.older = newest;
        storage->readonly.newer = NULL;
        if (newest != NULL) {
            newest->readonly.newer = storage;
        }
        set_newest(storage);
        __atomic_store_n(&storage->readonly.is_listed, true, __ATOMIC_RELEASE);
    }
    lock_drop(LOCK_READONLY);
}

void
readonly_forget(metal_storage *storage)
{
    if (!__atomic_load_n(&storage->readonly.is_listed, __ATOMIC_ACQUIRE)) {
        return;
    }
    lock_take(LOCK_READONLY);
    metal_storage *older = storage->readonly.older, *newer = storage->readonly.newer;
    if (older != NULL) {
        older->readonly.newer = newer;
    }
    if (newer != NULL) {
        newer->readonly.older = older;
    }
    else {
        set_newest(older);
    }
    __atomic_store_n(&storage->readonly.is_listed, false, __ATOMIC_RELEASE);
    lock_drop(LOCK_READONLY);
}

bool
readonly_knows_handle(const void *handle)
{
    bool is_known = false;
    if (readonly_is_empty()) {
        return false;
    }
    lock_take(LOCK_READONLY);
    for (const metal_storage *at = newest; at != NULL && !is_known; at = at->readonly.older) {
        is_known = (const void *)at->handle == handle;
    }
    lock_drop(LOCK_READONLY);
    return is_known;
}

bool
readonly_knows_bytes(const char *address, size_t nbytes)
{
    bool is_known = false;
    if (readonly_is_empty()) {
        return false;
    }
    lock_take(LOCK_READONLY);
    for (const metal_storage *at = newest; at != NULL && !is_known; at = at->readonly.older) {
        is_known = at->address != NULL && address < at->address + at->nbytes &&
                   at->address + at->first_byte < address + nbytes;
    }
    lock_drop(LOCK_READONLY);
    return is_known;
}
