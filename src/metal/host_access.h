/* host_access.h: the CPU reads a storage, or gets a writable view of it: wait for GPU work, and
 * have what it wrote in the CPU's copy.
 *
 * Owns:    the lock of synchronisations.
 * Calls:   work.h to synchronise managed storage, storage_sharing.h, tracking.h.
 * Threads: any, without the GIL; each waits for the GPU.
 * Result:  BRIDGE_COMMAND_FAILED: that work failed, or some before it on its stream.
 */
#ifndef MD_HOST_ACCESS_H
#define MD_HOST_ACCESS_H

#include "metal/storage.h"

/* Before the CPU reads at `address`: our GPU writes are done and in the CPU's copy. */
bridge_status host_access_begin_read(metal_storage *storage, bridge_error *error);

/* Before the CPU writes shared memory: GPU work of ours is done. */
bridge_status host_access_begin_write(metal_storage *storage, bridge_error *error);

/* A writable host view goes out: our GPU work is done, and in the CPU's copy.  On BRIDGE_OK any byte may
 * change until storage_close_host_view. */
bridge_status host_access_open_view(metal_storage *storage, bridge_error *error);

#endif /* MD_HOST_ACCESS_H */
