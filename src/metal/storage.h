/* storage.h: one MTLBuffer with everything that must live as long as it: made, and let go.
 *
 * Owns:    the +1 on the buffer, and the owner of the memory where that is not Metal.
 * Calls:   metal_bridge.h, pool.h, lookup.h, tracking.h, mlx_loaded.h.  Never Python: an owner that
 *          needs Python goes to the `retire` function that came with it.
 * Threads: retain and release from any thread, without the GIL, never waiting.
 * Rule:    what may touch the bytes holds a reference: a Buffer, an exported tensor, GPU work.
 */
#ifndef MD_STORAGE_H
#define MD_STORAGE_H

#include "metal/storage_record.h"

/* ---- making ---- */

/* One out of the pool, else a new one; `*out` is +1 on BRIDGE_OK and NULL on anything else.
 * BRIDGE_NOT_UNIFIED: managed storage, here and below, where CPU and GPU have memory of their own.
 * Where Metal has no room, empties the pool and asks once more.  nbytes 0 makes no Metal
 * call. */
bridge_status storage_new(const device_record *device, size_t nbytes, bridge_storage mode,
                          metal_storage **out);
/* Over an existing MTLBuffer.  `owner` is taken only on BRIDGE_OK.  `parent`: our storage
 * with this handle, which it keeps, so that all storages of a buffer know of each other's work;
 * stolen, whatever happens.  NULL: the buffer is foreign, and retained. */
bridge_status storage_wrap_buffer(bridge_buffer *buffer, metal_storage *parent,
                                  const device_record *device, size_t nbytes,
                                  const storage_owner *owner, metal_storage **out);
/* The length of the whole pages that hold the bytes. */
size_t storage_pages_nbytes(const void *address, size_t nbytes);
/* Over host memory: the whole pages that hold [address, address + nbytes), nbytes > 0.  Byte
 * `*offset` of the storage is `address`.  `owner` is taken only on BRIDGE_OK. */
bridge_status storage_wrap_host(const device_record *device, void *address, size_t nbytes,
                                const storage_owner *owner, metal_storage **out,
                                size_t *offset_bytes);

/* Over the whole memory of the surface behind `handle` (an IOSurfaceRef or CVPixelBufferRef),
 * which is kept and counts as in use until the storage is gone.  `*out` is +1 on BRIDGE_OK,
 * else NULL; `*nbytes` is the surface's length where it is known. */
bridge_status storage_wrap_surface(const device_record *device, const void *handle,
                                   metal_storage **out, size_t *nbytes);

/* A texture with bytes of its own, about `nbytes`: a storage whose handle is the texture, so that work on it is in
 * order, and counted, as that on a buffer.  Nobody binds it as a buffer, and no pool keeps it. */
bridge_status storage_new_texture(const device_record *device,
                                  const bridge_texture_facts *facts, size_t nbytes,
                                  metal_storage **out);
static inline bridge_texture *
storage_texture(const metal_storage *storage)
{
    return (bridge_texture *)(void *)storage->handle;
}

/* Before a framework gets the handle: it may read and write the bytes on the GPU. */
void storage_publish(metal_storage *storage);
/* Was the handle given away? */
static inline bool
storage_is_exported(const metal_storage *storage)
{
    return __atomic_load_n(&storage->is_exported, __ATOMIC_ACQUIRE);
}

void storage_release(metal_storage *storage); /* NULL is allowed */
/* The same by a caller who holds what owners of this `home` wait for: theirs go at once.  NULL:
 * the caller does not know. */
void storage_release_at(metal_storage *storage, const void *home);
void storage_free(metal_storage *storage); /* only from an owner's `retire` */

/* True if the caller's reference is the only one. */
bool storage_is_sole(const metal_storage *storage);

/* ---- memory of shared storages by its address alone ---- */

/* The storage that holds [address, address + nbytes): +1.  NULL: none of ours does. */
metal_storage *storage_find_memory(const void *address, size_t nbytes);

/* Memory of the default device, page-aligned; NULL: Metal has none.  The bytes are not set to
 * anything. */
void *storage_new_memory(size_t nbytes);
/* False: the memory is not of storage_new_memory. */
bool storage_free_memory(void *address);

#endif /* MD_STORAGE_H */
