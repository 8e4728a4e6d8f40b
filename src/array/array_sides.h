/* array_sides.h: the two sides of a copy: do they fit, and the copy itself.
 *
 * Rule:    shapes, element types and the right to write are checked before the first byte is
 *          written.
 * Threads: the GIL is held; released round waits and large copies.
 */
#ifndef MD_ARRAY_SIDES_H
#define MD_ARRAY_SIDES_H

#include "array/array_map.h"
#include "metal/stream.h"

/* From here on the GIL is worth releasing, in bytes.  To hand it over and get it back costs 55
 * ns when no thread waits for it: a fiftieth of a contiguous copy of this size within the
 * caches, and less of any other. */
#define LARGE_COPY 262144

/* The one entry of every copy: the source is broadcast, and may overlap the destination.  With
 * a stream the GPU does it later, where it can and the destination is an Array; NULL: see
 * array_queue.h.  -1 with TypeError (element types), ValueError (shapes, a read-only
 * destination), MemoryError or MetalError. */
int array_sides_copy(const char *function, array_side *dst, array_side *src,
                     metal_stream *stream);

/* The same of two Arrays, done on return. */
int array_copy_items(const char *function, ArrayObject *dst, ArrayObject *src);

#endif /* MD_ARRAY_SIDES_H */
