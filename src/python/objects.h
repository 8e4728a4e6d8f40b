/* objects.h: the structs of Buffer and Array, which lower floors look into; their functions
 * are in array/.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_OBJECTS_H
#define MD_OBJECTS_H

#include "arithmetic/dtype.h"
#include "arithmetic/dtype_bits.h"
#include "metal/storage.h"
#include "python/state.h"

typedef struct {
    PyObject_HEAD
    metal_storage *storage; /* owned (+1); NULL once closed */
    Py_ssize_t views;       /* Arrays and memoryviews that need it open; see buffer_hold */
    PyObject *weakrefs;     /* keeps nothing alive; NULL without weak references */
} BufferObject;

static inline BufferObject *
buffer_cast(PyObject *op)
{
    return (BufferObject *)op;
}

/* Where the items lie; here a[:, 1:3] of a = md.zeros((2, 4)):
 *
 *   0    4    8                                  storage->nbytes
 *   ┌────┬────┬────┬────┬────┬────┬────┬────┐
 *   │    │ 00 │ 01 │    │    │ 10 │ 11 │    │    dims: 2 2 (extents), 4 1 (strides in items)
 *   └────┴────┴────┴────┴────┴────┴────┴────┘
 *        ▲
 *        byte_offset, and first_bit for packed items
 *
 *   storage ─► the MTLBuffer's record
 *   buffer  ─► BufferObject ─► the same record, once somebody asks for a.buffer */
typedef struct {
    PyObject_VAR_HEAD       /* ob_size = 2 * ndim */
    metal_storage *storage; /* owned (+1) as long as there is no Buffer; then the Buffer's */
    /* owned; held open (buffer_hold).  NULL until array_buffer is asked for it */
    BufferObject *buffer;
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

static inline ArrayObject *
array_cast(PyObject *op)
{
    return (ArrayObject *)op;
}

static inline const int64_t *
array_shape(const ArrayObject *self)
{
    return self->dims;
}

static inline const int64_t *
array_strides(const ArrayObject *self)
{
    return self->dims + self->ndim;
}

/* Do items share bytes?  Then they are read and written by dtype_bits.h. */
static inline bool
array_is_packed(const ArrayObject *self)
{
    return !self->is_padded && !dtype_is_whole_bytes(self->dtype);
}

/* Bits from one item to the next. */
static inline int64_t
array_item_bits(const ArrayObject *self)
{
    return bits_per_item(self->dtype, self->is_padded);
}

static inline metal_storage *
array_storage(const ArrayObject *self)
{
    /* there: a Buffer that has it cannot be closed while an Array lives */
    return self->storage;
}

#endif /* MD_OBJECTS_H */
