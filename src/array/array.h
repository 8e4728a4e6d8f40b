/* array.h: the Python type `Array`, as other files see it.
 *
 * Owns:      the rule that an Array is a Buffer, a byte offset, a layout and an element type,
 *            and never changes after it was made; its items may.
 * Threads:   the GIL is held.
 * Invariant: every item lies within the Buffer; byte_offset fits the type's alignment where
 *            there are items.  Sub-byte items are packed, in any strides, or padded to a byte
 *            each.
 */
#ifndef MD_ARRAY_H
#define MD_ARRAY_H

#include "arithmetic/dtype.h"
#include "arithmetic/dtype_bits.h"
#include "arithmetic/layout.h"
#include "array/buffer.h"
#include "metal/stream.h"
#include "python/state.h"
#include "streams/stream_protocol.h"

/* Where the items lie; here a[:, 1:3] of a = md.zeros((2, 4)):
 *
 *   0    4    8                                  storage->nbytes
 *   ┌────┬────┬────┬────┬────┬────┬────┬────┐
 *   │    │ 00 │ 01 │    │    │ 10 │ 11 │    │    dims: 2 2 (extents), 4 1 (strides in items),
 *   └────┴────┴────┴────┴────┴────┴────┴────┘          16 4 (in bytes, once asked for)
 *        ▲
 *        byte_offset, and first_bit for packed items
 *
 *   head.storage ─► the MTLBuffer's record
 *   buffer ───────► BufferObject ─► the same record, once array_buffer has made it */
typedef struct {
    StorageObject head;   /* ob_size is 3 * ndim; the storage is owned (+1) or the Buffer's */
    BufferObject *buffer; /* owned, held open (buffer_hold); NULL: not made yet */
    int64_t byte_offset;
    int64_t nitems;
    PyObject *weakrefs; /* keeps nothing alive */
    DLDataType dtype;
    int32_t ndim;
    bool is_readonly;
    bool is_padded;          /* sub-byte items of one lane, each in a byte of its own */
    uint8_t first_bit;       /* not 0 only where array_view_bits made it */
    bool has_byte_strides;   /* array_request.c has written them */
    bool has_raised_unheard; /* in a buffer request: array_request.c */
    bool owns_memory;        /* made with it, and no view: what sys.getsizeof counts */
    int64_t dims[];
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

/* The strides that the buffer protocol shows: array_request.c's. */
static inline int64_t *
array_byte_strides(ArrayObject *self)
{
    return self->dims + 2 * self->ndim;
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
    return dtype_step_bits(self->dtype, self->is_padded);
}

static inline metal_storage *
array_storage(const ArrayObject *self)
{
    /* there: a Buffer that has it cannot be closed while an Array lives */
    return self->head.storage;
}

/* Free the memory of an Array whose references are given up, or keep it for the next Array of as
 * many dimensions: making and dropping one is what every exchange and every view does. */
void array_recycle(md_state *state, ArrayObject *self);
/* The module goes.  Its Array type is alive, and no longer the state's: nothing is kept again. */
void array_free_spares(md_state *state);

/* The Buffer, made at the first call: borrowed.  NULL with MemoryError. */
PyObject *array_buffer(ArrayObject *self);

/* Bytes of all items; packed ones share them. */
int64_t array_nbytes(const ArrayObject *self);

/* The layout with offset 0: element 0 is at byte_offset. */
static inline void
array_get_layout(const ArrayObject *self, strided_layout *out)
{
    size_t dims_nbytes = (size_t)self->ndim * sizeof(int64_t);
    out->ndim = self->ndim;
    out->offset = 0;
    memcpy(out->shape, array_shape(self), dims_nbytes);
    memcpy(out->strides, array_strides(self), dims_nbytes);
    out->itemsize = dtype_itemsize(self->dtype);
}

/* An Array over `buffer` (which it holds): owned (+1).  `layout`'s offset, in items, counts
 * from `byte_offset`.  With `is_padded`, which types of whole bytes ignore, sub-byte items have a
 * byte each.  The caller has checked the bounds.  NULL: no memory. */
PyObject *array_new(md_state *state, PyObject *buffer, int64_t byte_offset,
                    const strided_layout *layout, DLDataType dtype, bool is_readonly,
                    bool is_padded);

/* An Array that takes over the caller's reference to `storage`.  It makes its Buffer on
 * demand: most imported Arrays never need one.  NULL: no memory; the reference is dropped
 * then too. */
PyObject *array_over_storage(md_state *state, metal_storage *storage, int64_t byte_offset,
                             const strided_layout *layout, DLDataType dtype, bool is_readonly,
                             bool is_padded);

/* Another layout over the same items' memory; its offset counts from element 0.  NULL with
 * CopyRequiredError where the first of packed items would not begin on a byte. */
PyObject *array_view(ArrayObject *self, const strided_layout *layout);

/* Another Array of the same items. */
PyObject *array_alias(ArrayObject *self);

/* As array_view, beginning on any bit.  For reading and writing inside the library; users
 * never get one. */
PyObject *array_view_bits(ArrayObject *self, const strided_layout *layout);

/* What a new Array is to be. */
typedef struct array_creation {
    const device_record *device;
    bridge_storage mode;
    char order; /* 'C' or 'F' */
    int ndim;
    const int64_t *shape; /* borrowed */
    DLDataType dtype;
    bool is_padded; /* sub-byte items have a byte each; types of whole bytes ignore it */
} array_creation;

/* What makes an Array like this one, in C order. */
static inline array_creation
array_like(const ArrayObject *self)
{
    return (array_creation){.device = array_storage(self)->device,
                            .mode = array_storage(self)->mode,
                            .order = 'C',
                            .ndim = self->ndim,
                            .shape = array_shape(self),
                            .dtype = self->dtype,
                            .is_padded = self->is_padded};
}

/* An Array in new memory, whose bytes are not set: owned (+1).  NULL with ValueError (the
 * shape), MemoryError or MetalError. */
PyObject *array_allocate(md_state *state, const char *function, const array_creation *what);

/* Nobody has written the items of a new Array: the software Metal's checker finds kernels that read them.
 * `is_output`: nobody but the next launch can write them. */
void array_tell_unwritten(const ArrayObject *self, bool is_output);

/* A copy in new memory, which is as `what` says, of the same shape and element type: owned (+1).
 * On a stream, or done on return where that is NULL.  NULL as array_allocate, or with MetalError. */
PyObject *array_copied(const char *function, ArrayObject *self, const array_creation *what,
                       metal_stream *stream);

/* -1 with ValueError: items of this type cannot be padded, for they have several lanes. */
int array_check_padding(const char *function, DLDataType dtype);

/* Write one Python number into every item: on a stream, or done on return where that is NULL.
 * -1 with TypeError, OverflowError or ValueError (a read-only array). */
int array_fill(const char *function, ArrayObject *self, PyObject *value, metal_stream *stream);

/* Buffer.array() */
PyObject *array_from_buffer(PyObject *buffer, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
extern const char array_from_buffer_doc[];

#endif /* MD_ARRAY_H */
