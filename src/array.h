/* array.h: the Python type `Array`, as other files see it.
 *
 * Owns:      the rule that an Array is a Buffer, a byte offset, a layout and an element type, and
 *            never changes after it was made; its items may.
 * Threads:   the GIL is held.
 * Invariant: every item lies within the Buffer; byte_offset fits the type's alignment where there
 *            are items; strides of sub-byte types are compact.
 */
#ifndef MD_ARRAY_H
#define MD_ARRAY_H

#include "buffer.h"
#include "dtype.h"
#include "layout.h"
#include "state.h"

typedef struct {
    PyObject_VAR_HEAD     /* ob_size = 2 * ndim */
    BufferObject *buffer; /* owned; held open (buffer_hold) */
    int64_t byte_offset;  /* of element 0 */
    int64_t nitems;
    PyObject *weakrefs; /* keeps nothing alive */
    DLDataType dtype;
    int32_t ndim;
    bool is_readonly;
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

static inline metal_storage *
array_storage(const ArrayObject *self)
{
    return self->buffer->storage; /* there: close() is refused while an Array lives */
}

/* Bytes of all items, packed. */
int64_t array_nbytes(const ArrayObject *self);

/* The layout with offset 0: element 0 is at byte_offset. */
void array_get_layout(const ArrayObject *self, strided_layout *out);

/* An Array over `buffer` (which it holds): owned (+1).  `layout`'s offset, in items, counts from
 * `byte_offset`.  The caller has checked the bounds.  NULL: no memory. */
PyObject *array_new(md_state *state, PyObject *buffer, int64_t byte_offset,
                    const strided_layout *layout, DLDataType dtype, bool is_readonly);

/* Another layout over the same items' memory; its offset counts from element 0.  NULL with
 * CopyRequiredError where sub-byte items would not begin on a byte. */
PyObject *array_view(ArrayObject *self, const strided_layout *layout);

/* A new C- or Fortran-ordered Array; the bytes are not set. */
PyObject *array_allocate(md_state *state, const char *function, const device_record *device,
                         bridge_storage mode, int ndim, const int64_t *shape, DLDataType dtype,
                         char order);

/* A copy in new memory on the same device. */
PyObject *array_copied(ArrayObject *self, char order, bridge_storage mode);

/* Write one Python number into every item.  -1 with TypeError, OverflowError or ValueError (a
 * read-only array). */
int array_fill(const char *function, ArrayObject *self, PyObject *value);

/* Buffer.array() */
PyObject *array_from_buffer(PyObject *buffer, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
extern const char array_from_buffer_doc[];

#endif /* MD_ARRAY_H */
