/* array_object.h: the struct of an Array, for streams, which wait for work on its storage; its
 * functions are in array/.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_ARRAY_OBJECT_H
#define MD_ARRAY_OBJECT_H

#include "arithmetic/dtype.h"
#include "metal/storage.h"
#include "python/state.h"

typedef struct {
    PyObject_VAR_HEAD       /* ob_size = 2 * ndim */
    metal_storage *storage; /* owned (+1) as long as there is no Buffer; then the Buffer's */
    /* owned; held open (buffer_hold).  NULL until array_buffer is asked for it */
    struct BufferObject *buffer;
    int64_t byte_offset; /* of element 0 */
    int64_t nitems;
    PyObject *weakrefs; /* keeps nothing alive */
    DLDataType dtype;
    int32_t ndim;
    bool is_readonly;
    bool is_padded; /* sub-byte items of one lane, each in a byte of its own */
    /* of element 0 within its byte; not 0 only where array_view_bits made it */
    uint8_t first_bit;
    int64_t dims[]; /* ndim extents, then ndim strides in items */
} ArrayObject;

#endif /* MD_ARRAY_OBJECT_H */
