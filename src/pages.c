/* pages.c: see pages.h. */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

#include "locks.h"

static metal_storage **table; /* sorted by address; behind the lock, as is all that follows */
static size_t room;
static size_t used; /* written behind the lock, read without */

static bool
is_empty(void)
{
    return __atomic_load_n(&used, __ATOMIC_ACQUIRE) == 0;
}

/* How many storages begin at `address` or below. */
static size_t
count_up_to(const void *address)
{
    size_t low = 0, high = used;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)table[middle]->address <= (uintptr_t)address) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    return low;
}

static bool
make_room(void)
{
    if (used < room) {
        return true;
    }
    size_t more = room == 0 ? 64 : 2 * room;
    metal_storage **fresh = realloc(table, more * sizeof *table);
    if (fresh == NULL) {
        return false;
    }
    table = fresh;
    room = more;
    return true;
}

static bool
insert(metal_storage *storage)
{
    lock_take(LOCK_PAGES);
    bool fits = make_room();
    if (fits) {
        size_t place = count_up_to(storage->address);
        memmove(table + place + 1, table + place, (used - place) * sizeof *table);
        table[place] = storage;
        __atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
    }
    lock_drop(LOCK_PAGES);
    return fits;
}

void *
pages_new(size_t nbytes)
{
    metal_storage *storage;
    if (bridge_is_forked() || devices_count() == 0 ||
        storage_new(devices_get(0), nbytes, BRIDGE_SHARED, &storage) != BRIDGE_OK) {
        return NULL;
    }
    if (storage->address == NULL || !insert(storage)) {
        storage_release(storage);
        return NULL;
    }
    return storage->address;
}

bool
pages_free(void *address)
{
    metal_storage *found = NULL;
    if (address == NULL || is_empty()) {
        return false;
    }
    lock_take(LOCK_PAGES);
    size_t count = count_up_to(address);
    if (count > 0 && table[count - 1]->address == address) {
        found = table[count - 1];
        memmove(table + count - 1, table + count, (used - count) * sizeof *table);
        __atomic_store_n(&used, used - 1, __ATOMIC_RELEASE);
    }
    lock_drop(LOCK_PAGES);
    storage_release(found);
    return found != NULL;
}

metal_storage *
pages_find(const void *address, size_t nbytes)
{
    metal_storage *found = NULL;
    if (is_empty()) {
        return NULL;
    }
    lock_take(LOCK_PAGES);
    size_t count = count_up_to(address);
    if (count > 0) {
        metal_storage *below = table[count - 1];
        size_t offset = (uintptr_t)address - (uintptr_t)below->address;
        if (offset <= below->nbytes && nbytes <= below->nbytes - offset) {
            storage_retain(below);
            found = below;
        }
    }
    lock_drop(LOCK_PAGES);
    return found;
}
