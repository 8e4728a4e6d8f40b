/* storage.h: one MTLBuffer with everything that must live as long as it, counted in plain C.
 *
 * Owns:    the +1 on the buffer, and the owner of the memory where that is not Metal.
 * Calls:   metal_bridge.h, devices.h, tracking.h.  Never Python: an owner that needs Python is
 *          handed to the `retire` function that came with it.
 * Threads: retain and release from any thread, without the GIL, never waiting.  The copies may
 *          wait for the GPU: release the GIL first.
 * Rule:    whoever may touch the bytes holds a reference: a Buffer, an exported tensor.
 */
#ifndef MD_STORAGE_H
#define MD_STORAGE_H

#include "metal/storage_record.h"

/* ---- making ---- */

/* Memory that a storage before left, whose bytes are still in it: +1.  NULL: there is none, or
 * nbytes is 0. Calls no Metal and never waits, so the GIL may be held. */
metal_storage *storage_reuse(const device_record *device, size_t nbytes, bridge_storage mode);
/* The same, else new memory; `*out` is +1 on BRIDGE_OK and NULL on anything else.  Where Metal
 * has no room the cache is emptied and it is asked once more.  nbytes 0 makes no Metal call. */
bridge_status storage_new(const device_record *device, size_t nbytes, bridge_storage mode,
                          metal_storage **out);
/* Over an existing MTLBuffer, which is retained.  `owner` is taken only on BRIDGE_OK. */
bridge_status storage_wrap_buffer(bridge_buffer *buffer, const device_record *device,
                                  size_t nbytes, const storage_owner *owner,
                                  metal_storage **out);
/* Over a buffer of ours that somebody hands back: `parent` is stolen on BRIDGE_OK and keeps
 * the handle, `owner` keeps what the other side means to keep. */
bridge_status storage_wrap_parent(metal_storage *parent, const storage_owner *owner,
                                  metal_storage **out);
/* Over host memory: the whole pages that hold [address, address + nbytes), nbytes > 0.  Byte
 * `*offset` of the storage is `address`.  `owner` is taken only on BRIDGE_OK. */
bridge_status storage_wrap_host(const device_record *device, void *address, size_t nbytes,
                                const storage_owner *owner, metal_storage **out,
                                size_t *offset_bytes);

void storage_release(metal_storage *storage); /* NULL is allowed */
void storage_free(metal_storage *storage);    /* only from an owner's `retire` */

/* True if the caller's reference is the only one. */
bool storage_is_sole(const metal_storage *storage);

#endif /* MD_STORAGE_H */
