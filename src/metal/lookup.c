/* lookup.c: see lookup.h.
 *
 * By handle: open addressing, linear probing, at most half full.  By address: a treap, sorted by
 * address, a heap by a number that is made of the address, so that nothing need be balanced.
 */
#include "metal/lookup.h"

#include <stdlib.h>

#include "metal/locks.h"

/* ---- by handle ---- */

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

static void
remove_handle(const metal_storage *storage)
{
    if (slot_count == 0) {
        return;
    }
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

/* ---- by address ---- */

/* written behind the lock, as are the links of all nodes; read without for NULL */
static metal_storage *root;

static bool
is_empty(void)
{
    return __atomic_load_n(&root, __ATOMIC_RELAXED) == NULL;
}

/* SPEC splitmix64, finalizer: neighbouring addresses get unrelated ranks. */
static uint64_t
rank_of(const metal_storage *storage)
{
    uint64_t mixed = (uint64_t)(uintptr_t)storage->address;
    /* mutant survives (product): any rank makes a tree */
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

static void
set_link(metal_storage **link, metal_storage *storage)
{
    __atomic_store_n(link, storage, __ATOMIC_RELAXED);
}

/* The nodes of `tree` in two trees: below the address, and above it. */
static void
split(metal_storage *tree, const char *address, metal_storage **below, metal_storage **above)
{
    while (tree != NULL) {
        if (tree->address < address) {
            set_link(below, tree);
            below = &tree->pages.higher;
            tree = tree->pages.higher;
        }
        else {
            set_link(above, tree);
            above = &tree->pages.lower;
            tree = tree->pages.lower;
        }
    }
    set_link(below, NULL);
    set_link(above, NULL);
}

/* One tree of two, all of whose addresses are apart. */
static void
join(metal_storage **link, metal_storage *below, metal_storage *above)
{
    while (below != NULL && above != NULL) {
        if (rank_of(below) > rank_of(above)) {
            set_link(link, below);
            link = &below->pages.higher;
            below = below->pages.higher;
        }
        else {
            set_link(link, above);
            link = &above->pages.lower;
            above = above->pages.lower;
        }
    }
    set_link(link, below != NULL ? below : above);
}

/* The last node that begins at the address or below it. */
static metal_storage *
find_below(const char *address)
{
    metal_storage *found = NULL, *node = root;
    while (node != NULL) {
        if (node->address <= address) {
            found = node;
            node = node->pages.higher;
        }
        else {
            node = node->pages.lower;
        }
    }
    return found;
}

static metal_storage **
link_towards(metal_storage *node, const metal_storage *storage)
{
    return storage->address < node->address ? &node->pages.lower : &node->pages.higher;
}

static void
add_memory(metal_storage *storage)
{
    uint64_t rank = rank_of(storage);
    metal_storage **link = &root;
    while (*link != NULL && rank_of(*link) >= rank) {
        link = link_towards(*link, storage);
    }
    split(*link, storage->address, &storage->pages.lower, &storage->pages.higher);
    set_link(link, storage);
}

static void
remove_memory(metal_storage *storage)
{
    metal_storage **link = &root;
    while (*link != NULL && *link != storage) {
        link = link_towards(*link, storage);
    }
    if (*link == storage) {
        join(link, storage->pages.lower, storage->pages.higher);
    }
}

/* ---- both ---- */

void
lookup_add(metal_storage *storage)
{
    lock_take(LOCK_LOOKUP);
    if (make_room()) {
        put(storage);
        used_count++;
    }
    if (storage->address != NULL) {
        add_memory(storage);
    }
    lock_drop(LOCK_LOOKUP);
}

void
lookup_remove(metal_storage *storage)
{
    lock_take(LOCK_LOOKUP);
    remove_handle(storage);
    if (storage->address != NULL) {
        remove_memory(storage);
    }
    lock_drop(LOCK_LOOKUP);
}

metal_storage *
lookup_handle(const void *handle)
{
    metal_storage *found = NULL;
    lock_take(LOCK_LOOKUP);
    if (slot_count > 0) {
        size_t place = place_of(handle);
        while (slots[place] != NULL && (const void *)slots[place]->handle != handle) {
            place = next_place(place);
        }
        if (slots[place] != NULL && storage_retain_if_alive(slots[place])) {
            found = slots[place];
        }
    }
    lock_drop(LOCK_LOOKUP);
    return found;
}

metal_storage *
lookup_memory(const void *address, size_t nbytes, size_t *offset)
{
    if (is_empty()) {
        return NULL;
    }
    lock_take(LOCK_LOOKUP);
    metal_storage *found = find_below(address);
    if (found != NULL) {
        *offset = (size_t)((const char *)address - found->address);
        /* A caller with an address inside has a reference behind it, so the last one is not
         * about to go. */
        if (!lookup_fits(found->capacity, *offset, nbytes) || !storage_retain_if_alive(found)) {
            found = NULL;
        }
    }
    lock_drop(LOCK_LOOKUP);
    return found;
}

metal_storage *
lookup_take_plain(void *address)
{
    if (address == NULL || is_empty()) {
        return NULL;
    }
    lock_take(LOCK_LOOKUP);
    metal_storage *found = find_below(address);
    bool is_ours = found != NULL && found->address == address &&
                   __atomic_exchange_n(&found->pages.is_plain, false, __ATOMIC_RELAXED);
    lock_drop(LOCK_LOOKUP);
    return is_ours ? found : NULL;
}

/* ---- read-only memory ----
 *
 * A list: what is asked for is compared with every entry, some nanoseconds each, and only files and
 * constants are on it. */

static LIST_HEAD(, metal_storage) readonly; /* behind the lock */
static uint32_t readonly_count;             /* atomic; changes behind the lock */

bool
lookup_knows_no_readonly(void)
{
    return __atomic_load_n(&readonly_count, __ATOMIC_ACQUIRE) == 0;
}

void
lookup_publish_readonly(metal_storage *storage)
{
    bool is_root = storage->is_readonly && storage->parent == NULL && storage->handle != NULL;
    if (!is_root || __atomic_load_n(&storage->is_listed, __ATOMIC_ACQUIRE)) {
        return;
    }
    lock_take(LOCK_LOOKUP);
    if (!storage->is_listed) {
        LIST_INSERT_HEAD(&readonly, storage, readonly);
        (void)__atomic_add_fetch(&readonly_count, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&storage->is_listed, true, __ATOMIC_RELEASE);
    }
    lock_drop(LOCK_LOOKUP);
}

void
lookup_forget_readonly(metal_storage *storage)
{
    if (!__atomic_load_n(&storage->is_listed, __ATOMIC_ACQUIRE)) {
        return;
    }
    lock_take(LOCK_LOOKUP);
    LIST_REMOVE(storage, readonly);
    (void)__atomic_sub_fetch(&readonly_count, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&storage->is_listed, false, __ATOMIC_RELEASE);
    lock_drop(LOCK_LOOKUP);
}

bool
lookup_is_readonly(const void *handle)
{
    bool is_known = false;
    if (lookup_knows_no_readonly()) {
        return false;
    }
    lock_take(LOCK_LOOKUP);
    const metal_storage *at;
    LIST_FOREACH(at, &readonly, readonly)
    {
        is_known |= (const void *)at->handle == handle;
    }
    lock_drop(LOCK_LOOKUP);
    return is_known;
}

bool
lookup_has_readonly(const char *address, size_t nbytes)
{
    bool is_known = false;
    if (lookup_knows_no_readonly()) {
        return false;
    }
    lock_take(LOCK_LOOKUP);
    const metal_storage *at;
    LIST_FOREACH(at, &readonly, readonly)
    {
        is_known |= at->address != NULL && address < at->address + at->nbytes &&
                    at->address + at->first_byte < address + nbytes;
    }
    lock_drop(LOCK_LOOKUP);
    return is_known;
}
