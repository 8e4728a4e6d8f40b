/* array_sides.h: the two sides of a copy: do they fit, and the copy itself.
 *
 * Rule:    shapes, element types and the right to write are checked before the first byte is written.
 * Threads: the GIL is held; released round waits and large copies.
 */
#ifndef MD_ARRAY_SIDES_H
#define MD_ARRAY_SIDES_H

#include "array/array.h"
#include "exchange/host_memory.h"
#include "metal/stream.h"

/* From here on the GIL is worth releasing, in bytes.  To hand it over and get it back costs 55 ns with nobody waiting
 * for it: a fiftieth of a contiguous copy of this size within the caches, and less of any other. */
#define LARGE_COPY 262144

/* The items of an Array, or of CPU memory that somebody else's buffer view keeps. */
typedef struct array_side {
    ArrayObject *array; /* borrowed, or `kept`; NULL: CPU memory */
    PyObject *kept;     /* owned: an Array made for this copy; NULL: none */
    Py_buffer view;     /* `obj` NULL: none */
    char *origin;       /* of CPU memory: where element 0 is */
    strided_layout layout;
    DLDataType dtype;
    bool is_readonly;
} array_side;

void array_side_set(array_side *side, ArrayObject *array);
/* `value` as the other side of a copy with an Array.  -1 with what asarray raises. */
int array_side_open(array_side *side, md_state *state, PyObject *value,
                    const import_request *request);
/* The memory behind the buffer protocol as it stands, with no Metal in between.  False, and no exception:
 * `value` has no such memory, or not in a form that the engine can take. */
bool array_side_open_view(array_side *side, PyObject *value);
void array_side_close(array_side *side); /* after either of the two */

/* The one entry of every copy: the source is broadcast, and may overlap the destination.  With a stream the GPU
 * does it later, where it can and the destination is an Array; NULL: see array_queue.h.  -1 with TypeError
 * (element types), ValueError (shapes, a read-only destination), MemoryError or MetalError. */
int array_sides_copy(const char *function, array_side *dst, array_side *src, metal_stream *stream);

/* The same of two Arrays, done on return. */
int array_copy_items(const char *function, ArrayObject *dst, ArrayObject *src);

#endif /* MD_ARRAY_SIDES_H */
