/* handles.c: see handles.h.  Open addressing, linear probing, at most half full. */
#include "metal/handles.h"

#include <stdlib.h>

#include "metal/locks.h"

static metal_storage **slots; /* all under the lock */
static size_t slot_count;     /* a power of two, or 0 */
static size_t used_count;

/* Objects are 16 bytes apart at least; the multiplication spreads what is left. */
static size_t
place_of(const void *handle)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> 32) & (slot_count - 1);
}

static size_t
next_place(size_t place)
{
    return (place + 1) & (slot_count - 1);
}

static void
put(metal_storage *storage)
{
    size_t place = place_of(storage->handle);
    while (slots[place] != NULL) {
        place = next_place(place);
    }
    slots[place] = storage;
}

/* Room for one more.  False: out of memory, nothing changed. */
static bool
make_room(void)
{
    if (2 * (used_count + 1) <= slot_count) {
        return true;
    }
    size_t old_count = slot_count, new_count = old_count == 0 ? 64 : 2 * old_count;
    metal_storage **old = slots, **fresh = calloc(new_count, sizeof *fresh);
    if (fresh == NULL) {
        return false;
    }
    slots = fresh;
    slot_count = new_count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] != NULL) {
            put(old[i]);
        }
    }
    free(old);
    return true;
}

void
handles_add(metal_storage *storage)
{
    lock_take(LOCK_HANDLES);
    if (make_room()) {
        put(storage);
        used_count++;
    }
    lock_drop(LOCK_HANDLES);
}

void
handles_remove(const metal_storage *storage)
{
    lock_take(LOCK_HANDLES);
    if (slot_count > 0) {
        size_t place = place_of(storage->handle);
        while (slots[place] != NULL && slots[place] != storage) {
            place = next_place(place);
        }
        if (slots[place] != NULL) {
            slots[place] = NULL;
            used_count--;
            /* Put those behind the gap again, or a search would stop at it. */
            for (place = next_place(place); slots[place] != NULL; place = next_place(place)) {
                metal_storage *moved = slots[place];
                slots[place] = NULL;
                put(moved);
            }
        }
    }
    lock_drop(LOCK_HANDLES);
}

metal_storage *
handles_find(const void *handle)
{
    metal_storage *found = NULL;
    lock_take(LOCK_HANDLES);
    if (slot_count > 0) {
        size_t place = place_of(handle);
        while (slots[place] != NULL && (const void *)slots[place]->handle != handle) {
            place = next_place(place);
        }
        if (slots[place] != NULL && storage_retain_if_alive(slots[place])) {
            found = slots[place];
        }
    }
    lock_drop(LOCK_HANDLES);
    return found;
}
