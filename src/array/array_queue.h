/* array_queue.h: copies and fills that the GPU does: private storage, buffers in flight, a
 * stream that was named.
 *
 * Rule:    wait_rule.h says whether the call waits until the GPU is done.
 * Threads: the GIL is held; released while submitting, copying and waiting.
 * Result:  1: the GPU does it.  0: it is for the CPU, nothing was done.  -1 with MemoryError
 *          or MetalError.
 */
#ifndef MD_ARRAY_QUEUE_H
#define MD_ARRAY_QUEUE_H

#include "array/array.h"
#include "array/view_items.h"
#include "metal/stream.h"

/* One side of a copy: the items of an Array, or foreign CPU memory. */
typedef struct array_side {
    ArrayObject *array; /* borrowed, or `kept`; NULL: CPU memory */
    PyObject *kept;     /* owned: an Array made for this copy; NULL: none */
    foreign_view view;
    char *origin; /* of CPU memory: where element 0 is */
    strided_layout layout;
    DLDataType dtype;
    uint8_t first_bit; /* as an Array's, with the next two */
    bool is_padded, is_readonly;
} array_side;

/* Two sides that fit, with items of whole bytes.  CPU memory as a source is read before the
 * return, as a destination written.  `stream` NULL: the device's own, if the CPU cannot
 * do it. */
int array_queue_copy(const char *function, const array_side *dst, const array_side *src,
                     metal_stream *stream);
/* One item of whole bytes everywhere in an Array that has items. */
int array_queue_fill(const char *function, ArrayObject *dst, const char *item,
                     metal_stream *stream);

/* Show in a timeline that the CPU has copied the items since `started`; 0: none is open. */
void array_side_show_copy(const char *function, const array_side *dst, const array_side *src,
                          double started);

#endif /* MD_ARRAY_QUEUE_H */
