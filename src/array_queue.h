/* array_queue.h: copies and fills that a stream does while the caller goes on.
 *
 * Rule:    the GPU does what blits can do: runs of bytes whose offsets and lengths are multiples of 4, in
 *          different places.  For the rest the answer is "no", and the caller waits and uses the CPU.
 * Threads: the GIL is held; released while submitting and copying.
 * Result:  1: submitted.  0: not for the GPU, nothing was done.  -1 with MemoryError or MetalError.
 */
#ifndef MD_ARRAY_QUEUE_H
#define MD_ARRAY_QUEUE_H

#include "array_sides.h"
#include "stream.h"

/* Two sides that fit.  The destination is a living Array; CPU memory as a source is read before the
 * return. */
int array_queue_copy(const char *function, const array_side *dst, const array_side *src,
                     metal_stream *stream);
/* One item everywhere. */
int array_queue_fill(const char *function, ArrayObject *dst, const char *item,
                     metal_stream *stream);

#endif /* MD_ARRAY_QUEUE_H */
