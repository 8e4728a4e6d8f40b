/* staging.h: bytes in and out of storages: of private ones through a shared buffer, the stage.
 *
 *      the CPU's memory            the stage: shared,          private
 *                                  from the pool
 *          a range of bytes  ────>  the same range     <════>  a range of bytes
 *
 *                      ────  the CPU copies            ════  the GPU copies
 *
 * Owns:    a stage from its making to its release; GPU work in flight keeps it as well.
 * Calls:   storage.h for the buffer, copy.h for the CPU, work_items.h and metal_bridge.h for
 *          the GPU.
 * Threads: any, without the GIL.
 * Waits:   bytes are moved on return.
 */
#ifndef MD_STAGING_H
#define MD_STAGING_H

#include "metal/work_items.h"

/* ---- a range of bytes, done on return ---- */

/* A blit moves whole units, any other range a kernel, so that no neighbour is written.  SPEC
 * MTLBlitCommandEncoder copyFromBuffer: offsets and sizes */
typedef struct staged_range {
    metal_storage *storage; /* borrowed */
    size_t offset_bytes, nbytes;
    metal_storage *stage; /* owned (+1), its `address` has the range; NULL: not open */
} staged_range;

/* Open the range that the first three fields name.  `is_read` false: what the stage holds is
 * undefined.  On anything but BRIDGE_OK it is not open. */
bridge_status staging_open(staged_range *range, bool is_read, bridge_error *error);
/* Write the bytes back. */
bridge_status staging_flush(const staged_range *range, bridge_error *error);
/* Write back these items alone; all of them lie in the range, and offset 0 of the layout is at
 * `offset_bytes` of the storage. */
bridge_status staging_flush_items(const staged_range *range, const strided_layout *layout,
                                  int64_t offset_bytes, bridge_error *error);

/* ---- bytes in and out of a storage, whatever its mode ---- */

/* Each waits for our GPU work on the buffer.  BRIDGE_COMMAND_FAILED: that work failed, or some before
 * it on its stream. */
bridge_status staging_get_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                void *out, bridge_error *error);
bridge_status staging_put_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                const void *bytes, bridge_error *error);
/* Set every byte of a range. */
bridge_status staging_set_bytes(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                                uint8_t value, bridge_error *error);

#endif /* MD_STAGING_H */
