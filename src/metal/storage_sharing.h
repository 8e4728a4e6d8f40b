/* storage_sharing.h: who else reads and writes the bytes of a storage: the CPU, and GPU work of
 * frameworks.
 *
 *     managed storage:   the CPU's   ── didModifyRange, after the CPU wrote ─────►   the GPU's
 *                        copy        ◄─ synchronizeResource, after the GPU wrote ─   copy
 *
 * Owns:    storage_sharing of the record: how many writable host views are out, whether the GPU
 *          has written since, whether the handle was given away.
 * Calls:   tracking.h for work in flight, metal_bridge.h.  Never Python.
 * Threads: any, without the GIL.  storage_begin_... wait for the GPU.
 */
#ifndef MD_STORAGE_SHARING_H
#define MD_STORAGE_SHARING_H

#include "metal/storage_record.h"
#include "metal/tracking.h"

/* Before the CPU reads, or writes, at `address`: wait for our GPU work and make the bytes
 * current.  BRIDGE_COMMAND_FAILED: that work failed, or some before it on its stream. */
bridge_status storage_begin_host_read(metal_storage *storage, bridge_error *error);
bridge_status storage_begin_host_write(metal_storage *storage, bridge_error *error);
/* After the CPU wrote a range of `address`. */
void storage_end_host_write(metal_storage *storage, size_t offset_bytes, size_t nbytes);
/* A writable host view goes out or comes back: in between any byte may have changed. */
void storage_open_host_view(metal_storage *storage);
void storage_close_host_view(metal_storage *storage);
/* Before a framework gets the handle: its GPU work will see what the CPU wrote. */
void storage_publish(metal_storage *storage);
/* Before our own GPU work, behind tracking_lock: make it see what the CPU wrote through host
 * views.  A buffer that work in flight writes is left alone: the CPU's copy is stale, and comes
 * up to date with that work. */
void storage_flush_host_views_locked(metal_storage *storage);
/* Our GPU work will write.  True: managed storage with a writable host view out, whose CPU
 * copy must be brought up to date with the same work. */
bool storage_note_gpu_write(metal_storage *storage);

#endif /* MD_STORAGE_SHARING_H */
