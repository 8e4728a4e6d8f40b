/* staging.h: what is in private storage, where the CPU can see it: a shared buffer beside it.
 *
 *      the CPU's memory            the stage: shared,          private storage
 *                                  from the pool
 *     items of any layout  <────>  dense, in C order  <════>  items of any layout
 *         a range of bytes  ────>  whole blit units   <════>  a range of bytes
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
                             const char *origin, uint64_t *value, bridge_error *error);

/* Submit the copy of `src` to the stage.  Result as work_items_copy. */
bridge_status staging_download(metal_stream *stream, const work_items *stage,
                               const work_items *src, uint64_t *value, bridge_error *error);
/* When that is done: copy the stage to CPU memory. */
void staging_deliver(const work_items *stage, const strided_layout *dst, char *origin);

/* ---- bytes, done on return ---- */

typedef struct staged_range {
    metal_storage *storage; /* borrowed: private */
    size_t offset_bytes, nbytes;
    metal_storage *stage; /* owned (+1); NULL: not open */
    char *address;        /* in the stage: the range begins here */
} staged_range;

/* Open the range that the first three fields name.  `is_read` false: the caller will write all
 * its bytes, so only the neighbours that a blit takes along are fetched.  On anything but
 * BRIDGE_OK it is not open. */
bridge_status staging_open(staged_range *range, bool is_read, bridge_error *error);
/* Write the bytes back. */
bridge_status staging_flush(const staged_range *range, bridge_error *error);
void staging_close(staged_range *range); /* releases the stage; NULL is allowed */

#endif /* MD_STAGING_H */
