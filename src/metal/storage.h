/* storage.h: one MTLBuffer with everything that must live as long as it, counted in plain C.
 *
 * Owns:    the +1 on the buffer, and the owner of the memory where that is not Metal.
 * Calls:   metal_bridge.h, devices.h, tracking.h.  Never Python: an owner that needs Python is handed to the
 *          `retire` function that came with it.
 * Threads: retain and release from any thread, without the GIL, never waiting.  The copies may
 *          wait for the GPU: release the GIL first.
 * Rule:    whoever may touch the bytes holds a reference: a Buffer, an exported tensor.
 */
#ifndef MD_STORAGE_H
#define MD_STORAGE_H

#include "metal/devices.h"
#include "metal/tracking.h"

typedef struct metal_storage metal_storage;

/* Lengths are whole numbers of this, so that a blit can always take the last bytes too.
 * SPEC MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size: */
#define STORAGE_UNIT 4

/* What keeps foreign memory alive, and how it is let go.  `retire` is called once, on the thread of
 * the last release, with the storage, which it then owns: it must end in storage_free.  NULL:
 * nothing is kept alive. */
typedef struct storage_owner {
    void *object; /* a PyObject, a DLManagedTensor ...: only `retire` knows */
    int kind;     /* for `retire` */
    void *home;   /* for `retire`: where an owner waits for its interpreter */
    void (*retire)(metal_storage *storage);
} storage_owner;

struct metal_storage {
    uint32_t refs;               /* atomic */
    bridge_storage mode;
    bridge_buffer *handle;       /* owned (+1), or the parent's; NULL only where nbytes is 0 */
    const device_record *device; /* borrowed for ever */
    size_t nbytes;               /* where what may be used ends; the MTLBuffer can be longer */
    size_t first_byte;           /* and where it begins: not 0 only over host memory, which rarely begins a page */
    char *address;               /* CPU address of byte 0; NULL: private storage, or nbytes is 0 */
    bool is_readonly;            /* nobody may write: the memory behind is read-only */
    bool is_ours;                /* made by storage_new: handles.h finds it */
    bool is_over_pages;          /* of the owner: Metal says when it has done with them */
    bool is_host_memory;         /* its bytes are somebody's CPU memory */
    bool is_labelled;            /* the MTLBuffer has a label, which the next user would not expect */
    size_t capacity;             /* of the MTLBuffer where it is ours; else 0 */
    metal_storage *parent;       /* owned (+1): holds the handle for this one; NULL: it is our own */
    storage_owner owner;
    metal_storage *next;     /* in the list of retired storages, or of cached ones */
    metal_storage *previous; /* in the list of cached ones: see pool.h */
    uint64_t age;            /* there too: when it was given back */
    metal_storage *lower, *higher; /* in the tree of pages.h */
    bool is_plain;                 /* atomic: memory of pages_new, which holds a reference */
    uint32_t host_writers; /* atomic: writable host views that are out */
    bool gpu_wrote;        /* atomic: the CPU's copy of a managed buffer is stale */
    bool is_exported;      /* atomic, sticky: others know the handle, and may write on the GPU */
};

/* From `first_byte` on: bytes of others, before those of host memory on its first page, are not to be touched. */
static inline size_t
storage_usable_nbytes(const metal_storage *storage)
{
    return storage->nbytes - storage->first_byte;
}

/* ---- making ---- */

/* Memory that a storage before left, whose bytes are still in it: +1.  NULL: there is none, or nbytes is 0.
 * Calls no Metal and never waits, so the GIL may be held. */
metal_storage *storage_reuse(const device_record *device, size_t nbytes, bridge_storage mode);
/* The same, else new memory; `*out` is +1 on BRIDGE_OK and NULL on anything else.  Where Metal has no room
 * the cache is emptied and it is asked once more.  nbytes 0 makes no Metal call. */
bridge_status storage_new(const device_record *device, size_t nbytes, bridge_storage mode,
                          metal_storage **out);
/* Over an existing MTLBuffer, which is retained.  `owner` is taken only on BRIDGE_OK. */
bridge_status storage_wrap_buffer(bridge_buffer *buffer, const device_record *device,
                                  size_t nbytes, const storage_owner *owner,
                                  metal_storage **out);
/* Over a buffer of ours that somebody hands back: `parent` is stolen on BRIDGE_OK and keeps the handle,
 * `owner` keeps what the other side means to keep. */
bridge_status storage_wrap_parent(metal_storage *parent, const storage_owner *owner,
                                  metal_storage **out);
/* Over host memory: the whole pages that hold [address, address + nbytes), nbytes > 0.  Byte
 * `*offset` of the storage is `address`.  `owner` is taken only on BRIDGE_OK. */
bridge_status storage_wrap_host(const device_record *device, void *address, size_t nbytes,
                                const storage_owner *owner, metal_storage **out,
                                size_t *offset_bytes);

void storage_retain(metal_storage *storage);
/* False, and no reference: the last one is gone already, and the storage on its way out or in the pool. */
bool storage_retain_if_alive(metal_storage *storage);
void storage_release(metal_storage *storage); /* NULL is allowed */
void storage_free(metal_storage *storage);    /* only from an owner's `retire` */
void storage_destroy(metal_storage *storage); /* only for pool.c: of storage_new, without references */

/* True if the caller's reference is the only one. */
bool storage_is_sole(const metal_storage *storage);

/* ---- who may see the bytes ---- */

/* Is no GPU work of ours in flight, on any buffer?  One load; where it is true nothing waits. */
static inline bool
storage_is_quiet(void)
{
    return tracking_is_quiet();
}

/* Before the CPU reads `address`, and writes to it: waits for our GPU work and makes it current.  BRIDGE_COMMAND_FAILED:
 * that work failed, or some before it on its stream. */
bridge_status storage_begin_host_read(metal_storage *storage, bridge_error *error);
bridge_status storage_begin_host_write(metal_storage *storage, bridge_error *error);
/* After the CPU wrote a range of `address`. */
void storage_end_host_write(metal_storage *storage, size_t offset_bytes, size_t nbytes);
/* A writable host view goes out or comes back: in between any byte may have changed. */
void storage_open_host_view(metal_storage *storage);
void storage_close_host_view(metal_storage *storage);
/* Before others get the handle: their GPU work sees what the CPU wrote. */
void storage_publish(metal_storage *storage);
/* Before our own GPU work, behind tracking_lock: the same, without giving the handle away.  What is being
 * written is left alone: the CPU's copy is the older one, and is brought up to date with that work. */
void storage_flush_host_views_locked(metal_storage *storage);
/* Our GPU work will write.  True: managed storage with a writable host view out, whose CPU copy must be
 * brought up to date with the same work. */
bool storage_note_gpu_write(metal_storage *storage);

/* ---- a range of private storage, where the CPU can see it ---- */

/* A shared buffer from the pool that stands for the range: `*stage` is +1, the range begins at `*address`.
 * Waits.  `is_read` false: the bytes of the range are not asked for, only those beside it that a blit takes
 * along.  On anything but BRIDGE_OK both are NULL. */
bridge_status storage_stage_open(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                 bool is_read, metal_storage **stage, char **address,
                                 bridge_error *error);
/* Write the same range back.  Waits. */
bridge_status storage_stage_flush(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                  metal_storage *stage, bridge_error *error);

/* ---- bytes in and out, for every storage mode; both wait ---- */
bridge_status storage_download(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                               void *out, bridge_error *error);
bridge_status storage_upload(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                             const void *bytes, bridge_error *error);
/* Set every byte of a range. */
bridge_status storage_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                uint8_t value, bridge_error *error);

#endif /* MD_STORAGE_H */
