/* pages.c: see pages.h.  A treap: sorted by address, a heap by a number that is made of the
 * address, so that nothing need be balanced. */
#include "metal/pages.h"

#include "metal/locks.h"

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

/* ---- the tree ---- */

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

void
pages_add(metal_storage *storage)
{
    uint64_t rank = rank_of(storage);
    lock_take(LOCK_PAGES);
    metal_storage **link = &root;
    while (*link != NULL && rank_of(*link) >= rank) {
        link = link_towards(*link, storage);
    }
    split(*link, storage->address, &storage->pages.lower, &storage->pages.higher);
    set_link(link, storage);
    lock_drop(LOCK_PAGES);
}

void
pages_remove(metal_storage *storage)
{
    lock_take(LOCK_PAGES);
    metal_storage **link = &root;
    while (*link != NULL && *link != storage) {
        link = link_towards(*link, storage);
    }
    if (*link == storage) {
        join(link, storage->pages.lower, storage->pages.higher);
    }
    lock_drop(LOCK_PAGES);
}

/* ---- looking ---- */

metal_storage *
pages_hold(const void *address, size_t nbytes, size_t *offset)
{
    if (is_empty()) {
        return NULL;
    }
    lock_take(LOCK_PAGES);
    metal_storage *found = find_below(address);
    if (found != NULL) {
        *offset = (size_t)((const char *)address - found->address);
        /* A caller with an address inside has a reference behind it, so the last one is not
         * about to go. */
        if (!pages_fit(found->capacity, *offset, nbytes) || !storage_retain_if_alive(found)) {
            found = NULL;
        }
    }
    lock_drop(LOCK_PAGES);
    return found;
}

metal_storage *
pages_take_plain(void *address)
{
    if (address == NULL || is_empty()) {
        return NULL;
    }
    lock_take(LOCK_PAGES);
    metal_storage *found = find_below(address);
    bool is_ours = found != NULL && found->address == address &&
                   __atomic_exchange_n(&found->pages.is_plain, false, __ATOMIC_RELAXED);
    lock_drop(LOCK_PAGES);
    return is_ours ? found : NULL;
}
