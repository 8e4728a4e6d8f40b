/* array_copy.h: the two sides of a copy: do they fit, and the copy itself.
 *
 * Rule:    shapes, element types and the right to write are checked before the first byte is
 *          written.
 * Threads: the GIL is held; released round waits and large copies.
 */
#ifndef MD_ARRAY_COPY_H
#define MD_ARRAY_COPY_H

#include "array/array_queue.h"

/* From here on the GIL is worth releasing, in bytes.  To hand it over and get it back costs 55
 * ns when no thread waits for it: a fiftieth of a contiguous copy of this size within the
 * caches, and less of any other. */
#define LARGE_COPY 262144

void array_side_set(array_side *side, ArrayObject *array);
/* The memory behind the buffer protocol as it stands, with no Metal in between.  False, and no
 * exception: `value` has no such memory, or not in a form that the engine can take. */
bool array_side_open_view(array_side *side, md_state *state, PyObject *value);
void array_side_close(array_side *side); /* after either of the two */

/* 'C' or 'F' for one of `letters`: 'A' and 'K' are Fortran order where the array has it.  NULL: 'C'.
 * -1 with ValueError. */
int array_convert_order(const char *function, const ArrayObject *self, PyObject *value,
                        const char *letters, char *out);

/* The one entry of every copy: the source is broadcast, and may overlap the destination.  With
 * a stream the GPU does it later, where it can and the destination is an Array; NULL: see
 * array_queue.h.  -1 with TypeError (element types), ValueError (shapes, a read-only
 * destination), MemoryError or MetalError. */
int array_copy_sides(const char *function, array_side *dst, array_side *src,
                     metal_stream *stream);

#endif /* MD_ARRAY_COPY_H */
