/* lookup.c: see lookup.h.
 *
 * By handle: a hash table of lists.  By address: a treap, sorted by address, a heap by a number that
 * is made of the address, so that nothing need be balanced.
 */
#include "metal/lookup.h"

#include "metal/locks.h"

/* ---- by handle ---- */

#define SLOT_BITS 16

static LIST_HEAD(, metal_storage) slots[1 << SLOT_BITS]; /* all under the lock */

/* Objects are 16 bytes apart at least; the multiplication spreads what is left. */
static size_t
slot_of(const void *handle)
{
    return (((uintptr_t)handle >> 4) * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - SLOT_BITS);
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
    /* mutant survives (product #2): any rank makes a tree */
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
    LIST_INSERT_HEAD(&slots[slot_of(storage->handle)], storage, same_slot);
    if (storage->address != NULL) {
        add_memory(storage);
    }
    lock_drop(LOCK_LOOKUP);
}

void
lookup_remove(metal_storage *storage)
{
    lock_take(LOCK_LOOKUP);
    LIST_REMOVE(storage, same_slot);
    if (storage->address != NULL) {
        remove_memory(storage);
    }
    lock_drop(LOCK_LOOKUP);
}

metal_storage *
lookup_handle(const void *handle)
{
    lock_take(LOCK_LOOKUP);
    metal_storage *found = LIST_FIRST(&slots[slot_of(handle)]);
    while (found != NULL && (const void *)found->handle != handle) {
        found = LIST_NEXT(found, same_slot);
    }
    if (found != NULL && !storage_retain_if_alive(found)) {
        found = NULL;
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
