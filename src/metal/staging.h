/* staging.h: what is in private storage, where the CPU can reach it: a shared buffer beside it.
 *
 *      the CPU's memory            the stage: shared,          private
 *                                  from the pool
 *     items of any layout  <────>  dense, in C order  <════>  items of any layout
 *         a range of bytes  ────>  the same range     <════>  a range of bytes
 *
 *                      ────  the CPU copies            ════  the GPU copies
 *
 * Owns:    a stage from its making to its release; GPU work in flight keeps it as well.
 * Calls:   storage.h for the buffer, copy.h for the CPU, work_items.h and metal_bridge.h for
 *          the GPU.
 * Threads: any, without the GIL.
 * Waits:   items are moved by work on a stream: the caller waits for its value, or does not.
 *          Bytes are moved on return.
 */
#ifndef MD_STAGING_H
#define MD_STAGING_H

#include "metal/work_items.h"

/* ---- items, on a stream ---- */

/* Make the stage of items: `items->layout`, which is dense, says how large it is.  On BRIDGE_OK
 * `items->storage` is +1, on anything else NULL. */
bridge_status staging_new(const device_record *device, work_items *items);

/* Copy CPU memory to the stage and submit the copy to `dst`.  Result as work_items_copy.  The
 * CPU's memory is not looked at after the return. */
bridge_status staging_upload(metal_stream *stream, const work_items *dst,
                             const work_items *stage, const strided_layout *src,
                             const char *origin, uint64_t *value);

/* Submit the copy of `src` to the stage.  Result as work_items_copy. */
bridge_status staging_download(metal_stream *stream, const work_items *stage,
                               const work_items *src, uint64_t *value);
/* When that is done: copy the stage to CPU memory. */
void staging_deliver(const work_items *stage, const strided_layout *dst, char *origin);

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
void staging_close(staged_range *range); /* releases the stage; NULL is allowed */

/* Set every byte of a range; its offset and length are multiples of STORAGE_UNIT. */
bridge_status staging_fill(metal_storage *storage, size_t offset_bytes, size_t nbytes,
                           uint8_t byte, bridge_error *error);

#endif /* MD_STAGING_H */
