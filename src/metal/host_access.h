/* host_access.h: the CPU reads a storage, or gets a view of it: wait for GPU work, and have what
 * it wrote in the CPU's copy.
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

/* A read-only host view goes out: our GPU writes are done and in the CPU's copy.  Until
 * storage_close_host_view, GPU work of ours brings there what it writes. */
bridge_status host_access_open_readonly_view(metal_storage *storage, bridge_error *error);
/* A writable one: our reads are done too, and any byte may change until then. */
bridge_status host_access_open_view(metal_storage *storage, bridge_error *error);

/* Does the GPU write so many bytes, whoever asks?  To private storage; and to managed, but for
 * a few KiB. */
bool host_access_leaves_to_gpu(const metal_storage *storage, size_t nbytes);

/* A few KiB of managed storage that the GPU leaves alone: call `write`, which changes this
 * range of the CPU's copy and nothing else, and tell Metal.  False, and nothing is done: the
 * range is too long, or the GPU uses the storage, or may, so that only GPU work can write there
 * without losing what others do. */
bool host_access_write_idle(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                            void (*write)(void *context), void *context);

#endif /* MD_HOST_ACCESS_H */
