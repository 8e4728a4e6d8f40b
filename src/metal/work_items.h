/* work_items.h: items from one layout to another, on the GPU: blits where bytes lie in a row,
 * else a kernel.
 *
 * Owns:    nothing.
 * Calls:   work.h to submit, copy_grid.h for the kernels, storage.h for what an overlapping
 *          copy goes through.
 * Threads: any, without the GIL; never waits for work in flight.  The first copy of a device
 *          that needs a kernel compiles that one.
 */
#ifndef MD_WORK_ITEMS_H
#define MD_WORK_ITEMS_H

#include "arithmetic/layout.h"
#include "metal/work.h"

typedef struct work_items {
    metal_storage *storage; /* borrowed; on the stream's device */
    int64_t offset_bytes;   /* what offset 0 of the layout stands for */
    const strided_layout *layout;
} work_items;

/* Copy `src` to `dst`, of the same shape (with items) and itemsize; a source may repeat items,
 * and the two may overlap.  Result as work_submit. */
bridge_status work_items_copy(metal_stream *stream, const work_items *dst,
                              const work_items *src, uint64_t *value);

/* Write one item of at most 16 bytes to every place of `dst`. */
bridge_status work_items_fill(metal_stream *stream, const work_items *dst, const void *item,
                              uint64_t *value);

#endif /* MD_WORK_ITEMS_H */
