/* storage_record.h: what is known of one MTLBuffer, and its count.  storage.h makes and ends
 * it; the tables that list it (lookup.h, pool.h) know no more than this.
 *
 * Threads: any, without the GIL.
 */
#ifndef MD_STORAGE_RECORD_H
#define MD_STORAGE_RECORD_H

#include <sys/queue.h>

#include "metal/devices.h"

typedef struct metal_storage metal_storage;

/* Lengths are whole numbers of this, so that a blit can always take the last bytes too.
 * SPEC MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size: */
#define STORAGE_UNIT 4

/* What keeps foreign memory alive, and how it is let go.  `retire` is called once, on the
 * thread of the last release, with the storage, which it then owns: it must end in
 * storage_free.  `here` is what storage_release_at was told, or NULL.  NULL: nothing is kept
 * alive. */
typedef struct storage_owner {
    void *object; /* a PyObject, a DLManagedTensor ...: only `retire` knows */
    int kind;     /* for `retire` */
    void *home;   /* for `retire`: where an owner waits for its interpreter */
    void (*retire)(metal_storage *storage, const void *here);
    metal_storage *next; /* for `retire`: among those that wait */
    /* a PyObject that goes with `object`, which may let go of its memory before; or NULL */
    void *keeper;
} storage_owner;

/* A cached storage in its size class: written by pool.c, behind its lock. */
typedef struct pool_place {
    metal_storage *older, *newer;
    uint64_t age; /* when it was given back, by the pool's clock */
} pool_place;

/* A shared storage in the tree of addresses: written by lookup.c, behind its lock. */
typedef struct pages_place {
    metal_storage *lower, *higher;
    bool is_plain; /* atomic: memory of storage_new_memory, which holds a reference */
} pages_place;

/* The bytes, in one MTLBuffer (`handle`) of `mode` on `device`:
 *
 *     address           first_byte               nbytes           capacity
 *        ▼                  ▼                       ▼                 ▼
 *        ├──────────────────┼───────────────────────┼─────────────────┤
 *         not ours to touch     what may be used      spare, for the pool's size class
 *
 * Where they come from, and who gets them with the last reference:
 *
 *     memory                     handle       goes to
 *     ────────────────────────   ──────────   ────────────────────────────────────────
 *     ours                       +1           the pool (`cached`), or Metal
 *     a foreign MTLBuffer        +1           its `owner`
 *     pages of the CPU's         +1           their `owner`, once Metal is done with them
 *     ours, handed back to us    `parent`'s   its `owner`; the parent loses a reference
 *
 * Ours are found by `handle` (lookup.h), those with one by `address` too (`pages`).  Read-only
 * memory of others that was given away is found by both (`readonly`). */
struct metal_storage {
    uint32_t refs; /* atomic */
    bridge_storage mode;
    bridge_buffer *handle;       /* owned (+1), or the parent's; NULL only where nbytes is 0 */
    const device_record *device; /* borrowed for ever */
    char *address;               /* the CPU's, of byte 0; NULL: private storage, or no bytes */
    size_t nbytes;
    size_t first_byte;   /* not 0 only over host memory, which rarely begins a page */
    size_t capacity;     /* of the MTLBuffer where it is ours; else 0 */
    bool is_ours;        /* made by storage_new */
    bool is_readonly;    /* the memory behind is */
    bool is_host_memory; /* its bytes are foreign CPU memory */
    bool is_over_pages;  /* of the owner: Metal says when it is done with them */
    bool is_exported;    /* atomic, sticky: the handle was given away; the GPU may write */
    bool is_labelled;    /* by a user: the next one would not expect it */
    /* owned (+1): holds the handle for this one, and has no parent itself; NULL: it is our own */
    metal_storage *parent;
    storage_owner owner;
    pool_place cached;
    pages_place pages;
    LIST_ENTRY(metal_storage)
    same_slot; /* of the handles; behind lookup.c's lock, as the next */
    LIST_ENTRY(metal_storage) readonly;
    bool is_listed; /* atomic: there, for it was given away */
};

/* From `first_byte` on: host memory rarely begins its first page, and what comes before it
 * there must not be touched. */
static inline size_t
storage_usable_nbytes(const metal_storage *storage)
{
    return storage->nbytes - storage->first_byte;
}

static inline void
storage_retain(metal_storage *storage)
{
    (void)__atomic_fetch_add(&storage->refs, 1, __ATOMIC_RELAXED);
}

/* False, and no reference: the last one is gone, and the storage on its way out or in the
 * pool. */
static inline bool
storage_retain_if_alive(metal_storage *storage)
{
    uint32_t refs = __atomic_load_n(&storage->refs, __ATOMIC_RELAXED);
    while (refs != 0) {
        if (__atomic_compare_exchange_n(&storage->refs, &refs, refs + 1, true, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return true;
        }
    }
    return false;
}

#endif /* MD_STORAGE_RECORD_H */
