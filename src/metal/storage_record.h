/* storage_record.h: what is known of one MTLBuffer, and its count.  storage.h makes and ends
 * it; the tables in which it stands (handles.h, pages.h, pool.h) know no more than this.
 *
 * Threads: any, without the GIL.
 */
#ifndef MD_STORAGE_RECORD_H
#define MD_STORAGE_RECORD_H

#include "metal/devices.h"

typedef struct metal_storage metal_storage;

/* Lengths are whole numbers of this, so that a blit can always take the last bytes too.
 * SPEC MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size: */
#define STORAGE_UNIT 4

/* What keeps foreign memory alive, and how it is let go.  `retire` is called once, on the
 * thread of the last release, with the storage, which it then owns: it must end in
 * storage_free.  NULL: nothing is kept alive. */
typedef struct storage_owner {
    void *object; /* a PyObject, a DLManagedTensor ...: only `retire` knows */
    int kind;     /* for `retire` */
    void *home;   /* for `retire`: where an owner waits for its interpreter */
    void (*retire)(metal_storage *storage);
} storage_owner;

struct metal_storage {
    uint32_t refs; /* atomic */
    bridge_storage mode;
    bridge_buffer *handle;       /* owned (+1), or the parent's; NULL only where nbytes is 0 */
    const device_record *device; /* borrowed for ever */
    size_t nbytes;               /* where what may be used ends; the MTLBuffer can be longer */
    /* and where it begins: not 0 only over host memory, which rarely begins a page */
    size_t first_byte;
    /* CPU address of byte 0; NULL: private storage, or nbytes is 0 */
    char *address;
    bool is_readonly;    /* nobody may write: the memory behind is read-only */
    bool is_ours;        /* made by storage_new: handles.h finds it */
    bool is_over_pages;  /* of the owner: Metal says when it has done with them */
    bool is_host_memory; /* its bytes are somebody's CPU memory */
    /* the MTLBuffer has a label, which the next user would not expect */
    bool is_labelled;
    size_t capacity; /* of the MTLBuffer where it is ours; else 0 */
    /* owned (+1): holds the handle for this one; NULL: it is our own */
    metal_storage *parent;
    storage_owner owner;
    metal_storage *next;           /* in the list of retired storages, or of cached ones */
    metal_storage *previous;       /* in the list of cached ones: see pool.h */
    uint64_t age;                  /* there too: when it was given back */
    metal_storage *lower, *higher; /* in the tree of pages.h */
    bool is_plain;                 /* atomic: memory of pages_new, which holds a reference */
    uint32_t host_writers;         /* atomic: writable host views that are out */
    bool gpu_wrote;                /* atomic: the CPU's copy of a managed buffer is stale */
    /* atomic, sticky: others know the handle, and may write on the GPU */
    bool is_exported;
};

/* From `first_byte` on: bytes of others, before those of host memory on its first page, are
 * not to be touched. */
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

/* False, and no reference: the last one is gone already, and the storage on its way out or in
 * the pool. */
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
