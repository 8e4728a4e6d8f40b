/* array.c: the Array type: a Buffer, a byte offset, a layout and an element type.
 *
 * Owns:    one reference to its Buffer, which it holds open; one to the storage until there is
 *          a Buffer.
 * Threads: the GIL is held.
 */
#include "array/array.h"

#include "metal/tracking_watch.h"
#include "python/errors.h"
#include "python/owners.h"

/* ---- memory ---- */

/* AddressSanitizer could not tell a dead Array from its successor.  gcc and clang say in
 * different ways that it is on. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define KEEPS_SPARES false
#else
#define KEEPS_SPARES true
#endif

/* An untracked Array of nothing yet, which can be released as it is: owned (+1). */
static ArrayObject *
allocate_object(md_state *state, int ndim)
{
    PyObject **spare = &state->spare_arrays[ndim < MD_SPARE_ARRAYS ? ndim : 0];
    ArrayObject *self;
    if (ndim >= MD_SPARE_ARRAYS || *spare == NULL) {
        self = PyObject_GC_NewVar(ArrayObject, state->array_type, 3 * ndim);
        if (self == NULL) {
            return NULL;
        }
    }
    else {
        self =
            (ArrayObject *)PyObject_InitVar((PyVarObject *)*spare, state->array_type, 3 * ndim);
        *spare = NULL;
    }
    self->head.storage = NULL;
    self->buffer = NULL;
    self->weakrefs = NULL;
    self->ndim = ndim;
    self->has_byte_strides = self->has_raised_unheard = self->owns_memory = false;
    return self;
}

void
array_recycle(md_state *state, ArrayObject *self)
{
    bool is_kept = KEEPS_SPARES && state_is_alive((PyObject *)self) &&
                   state->array_type != NULL && self->ndim < MD_SPARE_ARRAYS &&
                   state->spare_arrays[self->ndim] == NULL;
    if (is_kept) {
        state->spare_arrays[self->ndim] = (PyObject *)self;
    }
    else {
        PyObject_GC_Del(self);
    }
}

void
array_free_spares(md_state *state)
{
    for (int ndim = 0; ndim < MD_SPARE_ARRAYS; ndim++) {
        PyObject *spare = state->spare_arrays[ndim];
        state->spare_arrays[ndim] = NULL;
        if (spare != NULL) {
            PyObject_GC_Del(spare);
        }
    }
}

/* ---- making ---- */

/* All but the Buffer.  `first_bit` counts from `byte_offset`, the layout's offset from there.
 * `is_padded` is ignored for types of whole bytes. */
static void
set_items(ArrayObject *self, metal_storage *storage, int64_t byte_offset, int64_t first_bit,
          const strided_layout *layout, DLDataType dtype, bool is_padded)
{
    bool has_padding = is_padded && !dtype_is_whole_bytes(dtype);
    size_t dims_nbytes = (size_t)layout->ndim * sizeof(int64_t);
    int64_t step = dtype_step_bits(dtype, has_padding);
    int64_t bits = first_bit + layout->offset * (step % 8);
    self->head.storage = storage;
    self->byte_offset = byte_offset + layout->offset * (step / 8) + (bits >> 3);
    self->first_bit = (uint8_t)(bits & 7);
    self->nitems = layout_volume(layout);
    self->dtype = dtype;
    self->is_padded = has_padding;
    self->is_readonly = storage->is_readonly;
    memcpy(self->dims, layout->shape, dims_nbytes);
    memcpy(self->dims + layout->ndim, layout->strides, dims_nbytes);
}

/* The same with its Buffer, which is open: owned (+1). */
static ArrayObject *
allocate_over(md_state *state, PyObject *buffer, int ndim)
{
    buffer_hold(buffer_cast(buffer)); /* first: the collector can run anything, also close() */
    ArrayObject *self = allocate_object(state, ndim);
    if (self == NULL) {
        buffer_unhold(buffer_cast(buffer));
        return NULL;
    }
    self->buffer = buffer_cast(Py_NewRef(buffer));
    /* the collector can reach nothing else through an Array */
    if (PyObject_GC_IsTracked(buffer)) {
        PyObject_GC_Track(self);
    }
    return self;
}

PyObject *
array_new(md_state *state, PyObject *buffer, int64_t byte_offset, const strided_layout *layout,
          DLDataType dtype, bool is_readonly, bool is_padded)
{
    ArrayObject *self = allocate_over(state, buffer, layout->ndim);
    if (self == NULL) {
        return NULL;
    }
    set_items(self, buffer_cast(buffer)->storage, byte_offset, 0, layout, dtype, is_padded);
    self->is_readonly |= is_readonly;
    return (PyObject *)self;
}

/* Over a storage without a Python owner, which is taken over whatever the result: owned (+1). */
static ArrayObject *
take_storage(md_state *state, metal_storage *storage, int64_t byte_offset,
             const strided_layout *layout, DLDataType dtype, bool is_padded)
{
    ArrayObject *self = allocate_object(state, layout->ndim);
    if (self == NULL) {
        storage_release(storage);
        return NULL;
    }
    set_items(self, storage, byte_offset, 0, layout, dtype, is_padded);
    return self;
}

PyObject *
array_over_storage(md_state *state, metal_storage *storage, int64_t byte_offset,
                   const strided_layout *layout, DLDataType dtype, bool is_readonly,
                   bool is_padded)
{
    /* the garbage collector finds a Python owner through the Buffer */
    if (owners_object(storage) != NULL) {
        PyObject *buffer = buffer_from_storage(state, storage);
        PyObject *op = buffer == NULL ? NULL
                                      : array_new(state, buffer, byte_offset, layout, dtype,
                                                  is_readonly, is_padded);
        Py_XDECREF(buffer);
        return op;
    }
    ArrayObject *self = take_storage(state, storage, byte_offset, layout, dtype, is_padded);
    if (self != NULL) {
        self->is_readonly |= is_readonly;
    }
    return (PyObject *)self;
}

PyObject *
array_buffer(ArrayObject *self)
{
    BufferObject *known = __atomic_load_n(&self->buffer, __ATOMIC_ACQUIRE);
    if (known != NULL) {
        return (PyObject *)known;
    }
    storage_retain(self->head.storage);
    PyObject *made = buffer_from_storage(state_of((PyObject *)self), self->head.storage);
    if (made == NULL) {
        return NULL;
    }
    buffer_hold(buffer_cast(made));
    /* Making it can run the garbage collector, and that any code: another thread may have
     * been first. */
    if (!__atomic_compare_exchange_n(&self->buffer, &known, buffer_cast(made), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        buffer_unhold(buffer_cast(made));
        Py_DECREF(made);
        return (PyObject *)known;
    }
    storage_release(self->head.storage); /* the Buffer's reference is there now */
    return made;
}

PyObject *
array_view_bits(ArrayObject *self, const strided_layout *layout)
{
    PyObject *buffer = array_buffer(self);
    ArrayObject *view =
        buffer == NULL ? NULL : allocate_over(state_of((PyObject *)self), buffer, layout->ndim);
    if (view == NULL) {
        return NULL;
    }
    set_items(view, self->head.storage, self->byte_offset, self->first_bit, layout, self->dtype,
              self->is_padded);
    view->is_readonly = self->is_readonly;
    return (PyObject *)view;
}

PyObject *
array_alias(ArrayObject *self)
{
    strided_layout layout;
    array_get_layout(self, &layout);
    return array_view_bits(self, &layout);
}

PyObject *
array_view(ArrayObject *self, const strided_layout *layout)
{
    PyObject *op = array_view_bits(self, layout);
    if (op == NULL || array_cast(op)->first_bit == 0) {
        return op;
    }
    ArrayObject *view = array_cast(op);
    if (view->nitems == 0) { /* an empty view begins nowhere */
        view->first_bit = 0;
        return op;
    }
    (void)errors_copy_required(
        state_of(op),
        "Array: the first %s item of the view begins at bit %d of byte %lld of the buffer, and "
        "a view must begin on a byte; begin it at another item, or view a.copy(padded=True), "
        "where each item has a byte.",
        dtype_name(self->dtype).text, (int)view->first_bit, (long long)view->byte_offset);
    Py_DECREF(op);
    return NULL;
}

/* Packed items share bytes.  Fits: a layout has counted them with a whole number of bytes each.
 * SPEC dlpack.h DLDataType: sub-byte items are packed by default. */
static int64_t
count_bytes(int64_t nitems, int64_t step_bits)
{
    return nitems / 8 * step_bits + (nitems % 8 * step_bits + 7) / 8;
}

/* SPEC export-alignment */
PyObject *
array_allocate(md_state *state, const char *function, const array_creation *what)
{
    strided_layout layout;
    layout_fault fault;
    if (!layout_set_dense(&layout, what->ndim, what->shape, dtype_itemsize(what->dtype),
                          what->order, &fault)) {
        return fault.code != LAYOUT_FAULT_OVERFLOW
                   ? errors_from_layout(state, function, &fault)
                   : PyErr_Format(
                         PyExc_ValueError,
                         "%s: 2**63 bytes or more are more than one buffer of the device can "
                         "hold (max_buffer_length is %llu bytes); use several arrays.",
                         function, (unsigned long long)what->device->facts.max_buffer_length);
    }
    int64_t nitems = layout_volume(&layout);
    int64_t nbytes = count_bytes(nitems, dtype_step_bits(what->dtype, what->is_padded));
    metal_storage *storage =
        buffer_allocate_storage(state, function, what->device, (size_t)nbytes, what->mode);
    ArrayObject *self = storage == NULL ? NULL
                                        : take_storage(state, storage, 0, &layout, what->dtype,
                                                       what->is_padded);
    if (self != NULL) {
        self->owns_memory = true;
    }
    return (PyObject *)self;
}

void
array_tell_unwritten(const ArrayObject *self, bool is_output)
{
    const metal_storage *storage = array_storage(self);
    WATCH_UNWRITTEN(storage->handle, storage->nbytes, is_output);
}

/* ---- facts ---- */

int
array_check_padding(const char *function, DLDataType dtype)
{
    if (dtype.lanes == 1 || dtype.bits >= 8) {
        return 0;
    }
    return errors_raise(PyExc_ValueError,
                        "%s: only items of one lane can be padded to a byte, not %s.", function,
                        dtype_name(dtype).text);
}

int64_t
array_nbytes(const ArrayObject *self)
{
    return count_bytes(self->nitems, array_item_bits(self));
}
