/* storage_sharing.h: who else reads and writes the bytes of a storage: the CPU beside the GPU.
 *
 *     managed storage:     the CPU's copy      the GPU's copy
 *                                ──────────────►               didModifyRange: after the CPU wrote
 *                                ◄──────────────               synchronizeResource: after the GPU wrote
 *
 * Owns:    what a record knows of that: writable views of the CPU's that are out, whether the GPU
 *          has written since, whether the handle was given away.
 * Calls:   tracking.h for work in flight, metal_bridge.h.  Never Python.
 * Threads: any, without the GIL.  What begins an access waits for the GPU.
 */
#ifndef MD_STORAGE_SHARING_H
#define MD_STORAGE_SHARING_H

#include "metal/storage_record.h"
#include "metal/tracking.h"

/* Before the CPU reads `address`, and writes to it: waits for our GPU work and makes it
 * current.  BRIDGE_COMMAND_FAILED: that work failed, or some before it on its stream. */
bridge_status storage_begin_host_read(metal_storage *storage, bridge_error *error);
bridge_status storage_begin_host_write(metal_storage *storage, bridge_error *error);
/* After the CPU wrote a range of `address`. */
void storage_end_host_write(metal_storage *storage, size_t offset_bytes, size_t nbytes);
/* A writable host view goes out or comes back: in between any byte may have changed. */
void storage_open_host_view(metal_storage *storage);
void storage_close_host_view(metal_storage *storage);
/* Before others get the handle: their GPU work sees what the CPU wrote. */
void storage_publish(metal_storage *storage);
/* Before our own GPU work, behind tracking_lock: the same, without giving the handle away.
 * What is being written is left alone: the CPU's copy is the older one, and is brought up to
 * date with that work. */
void storage_flush_host_views_locked(metal_storage *storage);
/* Our GPU work will write.  True: managed storage with a writable host view out, whose CPU
 * copy must be brought up to date with the same work. */
bool storage_note_gpu_write(metal_storage *storage);

#endif /* MD_STORAGE_SHARING_H */
