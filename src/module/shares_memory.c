/* shares_memory.c: do two objects, of whatever framework, have a byte in common?
 *
 * Owns:    the answer to where an object's items are: the MTLBuffer they lie in, their CPU
 *          address, or both.
 * Calls:   foreign_tensor.h for those who speak DLPack, NumPy for __array_interface__,
 *          layout.h for the arithmetic.
 * Threads: the GIL is held; released while a search is long.
 * Rule:    nothing is copied, imported or wrapped: metadata is read and let go.
 */
#include "module/module.h"

#include "arithmetic/layout.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "array/view_items.h"
#include "exchange/foreign_tensor.h"
#include "exchange/foreign_types.h"
#include "python/args.h"
#include "python/attribute.h"
#include "python/errors.h"
#include "python/owners.h"

#define WHERE "shares_memory"

/* Where items are.  What is held keeps them there until end_place. */
typedef struct place {
    strided_layout layout;
    const void *handle;     /* the MTLBuffer, borrowed; NULL: CPU memory alone, or no items */
    uint64_t handle_offset; /* bytes from its start to element 0 */
    const char *address;    /* of element 0; NULL: private storage, or no items */
    bool is_nowhere;        /* no items, or a copy made for the asking */
    BufferObject *held;     /* held open (buffer_hold), borrowed from the caller; NULL: none */
    foreign_tensor seen;
    foreign_view view;
} place;

static void
end_place(place *self)
{
    foreign_close(&self->seen);
    view_close(&self->view);
    if (self->held != NULL) {
        buffer_unhold(self->held);
    }
}

/* The layout of the bytes where no two packed items share one.  False: some do. */
static bool
items_as_bytes(const strided_layout *layout, int64_t item_bits, strided_layout *out)
{
    layout_copy(layout, out);
    out->itemsize = (item_bits + 7) / 8;
    for (int axis = 0; axis < layout->ndim; axis++) {
        int64_t step_bits;
        if (layout->shape[axis] == 1) {
            continue; /* no step is taken, whatever the stride */
        }
        if (!layout_multiply(layout->strides[axis], item_bits, &step_bits) ||
            step_bits % 8 != 0) {
            return false;
        }
        out->strides[axis] = step_bits / 8;
        if (out->strides[axis] % out->itemsize != 0) {
            return false;
        }
        out->strides[axis] /= out->itemsize;
    }
    return layout->offset == 0;
}

/* Set the layout.  Packed items become the bytes that they lie in: whole rows, else single
 * items, else all bytes from the first to the last.  Other layouts stay. */
static int
set_items(place *self, const strided_layout *layout, int64_t item_bits)
{
    int64_t first, end, nbytes;
    layout_fault fault;
    self->layout = *layout;
    if (item_bits % 8 == 0 || layout_volume(layout) == 0 ||
        bits_as_bytes(layout, item_bits, &self->layout) ||
        items_as_bytes(layout, item_bits, &self->layout)) {
        return 0;
    }
    if (!bits_byte_span(layout, item_bits, 0, &first, &end) ||
        !layout_add(end, -first, &nbytes) ||
        !layout_set(&self->layout, 1, &nbytes, NULL, 1, first, &fault)) {
        /* unreached: no test makes it fail here */
        return errors_raise(PyExc_OverflowError, WHERE
                            ": the items reach 2**60 bytes or farther, which no memory has.");
    }
    return 0;
}

/* ---- our own ---- */

static void
place_in_storage(place *self, const metal_storage *storage, int64_t offset_bytes)
{
    self->handle = storage->handle;
    self->handle_offset = (uint64_t)offset_bytes;
    self->address = storage->address == NULL ? NULL : storage->address + offset_bytes;
    self->is_nowhere = storage->handle == NULL;
}

static int
place_array(ArrayObject *array, place *self)
{
    strided_layout layout;
    array_get_layout(array, &layout);
    place_in_storage(self, array_storage(array), array->byte_offset);
    return set_items(self, &layout, array_item_bits(array));
}

static int
place_buffer(PyObject *op, place *self)
{
    metal_storage *storage = buffer_open_storage(WHERE, buffer_cast(op));
    layout_fault fault;
    if (storage == NULL) {
        return -1;
    }
    self->held = buffer_cast(op); /* the other argument's code may not close it */
    buffer_hold(self->held);
    int64_t nbytes = (int64_t)storage->nbytes;
    place_in_storage(self, storage, 0);
    /* sizes fit: it is allocated */
    (void)layout_set(&self->layout, 1, &nbytes, NULL, 1, 0, &fault);
    return 0;
}

/* ---- the buffer protocol, __array_interface__ ---- */

/* Place items whose strides count bytes and need not be whole items: an item's bytes become
 * the last axis. */
static int
place_bytes(place *self, const char *address, int ndim, const int64_t *shape,
            const int64_t *strides, int64_t itemsize)
{
    layout_fault fault;
    /* mutant survives (off by one): one element more is read: asan sees it */
    int64_t extents[LAYOUT_MAX_NDIM + 1], steps[LAYOUT_MAX_NDIM + 1];
    int count = 0;
    for (int axis = 0; axis < ndim; axis++) {
        if (shape[axis] != 1) {
            extents[count] = shape[axis];
            steps[count++] = strides[axis];
        }
    }
    extents[count] = itemsize;
    steps[count++] = 1;
    if (!layout_set(&self->layout, count, extents, steps, 1, 0, &fault)) {
        return errors_raise(PyExc_ValueError,
                            WHERE ": the memory has more than 63 axes, or reaches 2**63 bytes "
                                  "or farther, which no memory does.");
    }
    self->address = address;
    self->is_nowhere = layout_volume(&self->layout) == 0;
    return 0;
}

/* Read an open view. */
static int
place_view(place *self)
{
    const Py_buffer *memory = &self->view.memory;
    if (memory->suboffsets != NULL) {
        return errors_raise(PyExc_BufferError,
                            WHERE ": memory that is reached through pointers (suboffsets) has "
                                  "no strides to compare.");
    }
    return place_bytes(self, memory->buf, memory->ndim, (const int64_t *)memory->shape,
                       (const int64_t *)memory->strides, memory->itemsize);
}

/* Read what has __array_interface__, its items as plain bytes: NumPy exports no dates by
 * the buffer protocol. */
static int
place_interface(PyObject *op, place *self)
{
    PyObject *items = array_numpy_asarray(WHERE, op);
    PyObject *itemsize = items == NULL ? NULL : PyObject_GetAttrString(items, "itemsize");
    PyObject *kind = itemsize == NULL ? NULL : PyUnicode_FromFormat("V%S", itemsize);
    PyObject *plain = kind == NULL ? NULL : PyObject_CallMethod(items, "view", "(O)", kind);
    int result = plain == NULL ? -1 : view_open(WHERE, plain, &self->view);
    Py_XDECREF(plain);
    Py_XDECREF(kind);
    Py_XDECREF(itemsize);
    Py_XDECREF(items);
    return result < 0 ? -1 : place_view(self);
}

/* ---- DLPack ---- */

/* SPEC shares-memory */
static int
place_tensor(place *self)
{
    const dlpack_facts *facts = &self->seen.facts;
    const device_record *device;
    dlpack_fault fault;
    if (!foreign_check(&self->seen, &fault)) {
        return foreign_refuse(WHERE, &self->seen, &fault);
    }
    const DLTensor *tensor = self->seen.tensor;
    if (set_items(self, &facts->layout, dtype_step_bits(tensor->dtype, facts->is_padded)) < 0) {
        return -1;
    }
    self->is_nowhere =
        facts->nitems == 0 || (self->seen.flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
    if (self->is_nowhere) {
        return 0;
    }
    if (tensor->device.device_type == kDLCPU) {
        self->address = (const char *)tensor->data + tensor->byte_offset;
        return 0;
    }
    if (!foreign_check_buffer(&self->seen, NULL, &device, &fault)) {
        return foreign_refuse(WHERE, &self->seen, &fault);
    }
    const char *contents = bridge_buffer_contents(tensor->data);
    self->handle = tensor->data;
    self->handle_offset = tensor->byte_offset;
    self->address = contents == NULL ? NULL : contents + tensor->byte_offset;
    return 0;
}

/* ---- anything ---- */

static int
place_other(md_state *state, PyObject *op, place *self)
{
    bool has_view = PyObject_CheckBuffer(op);
    if (has_view && view_open(WHERE, op, &self->view) == 0) {
        return place_view(self);
    }
    PyErr_Clear(); /* another protocol may: NumPy exports no dates by this one */
    int speaks = PyCapsule_CheckExact(op) ? 1 : foreign_speaks(state, op);
    PyObject *interface;
    if (speaks < 0 || (attribute_find(op, state->str___array_interface__, &interface) < 0 &&
                       (!speaks || errors_pass_over() < 0))) {
        return -1;
    }
    /* some say None for none */
    bool has_interface = interface != NULL && PyDict_Check(interface);
    Py_XDECREF(interface);
    if (has_interface) {
        return place_interface(op, self);
    }
    if (!speaks && has_view) { /* no other does: the exporter says why */
        return view_open(WHERE, op, &self->view) < 0 ? -1 : place_view(self);
    }
    if (!speaks) {
        return errors_raise(PyExc_TypeError,
                            WHERE ": %.100s is neither an array nor a buffer: it has no "
                                  "__dlpack__, no buffer protocol and no __array_interface__.",
                            Py_TYPE(op)->tp_name);
    }
    return foreign_open(state, WHERE, op, NULL, &self->seen) < 0 ? -1 : place_tensor(self);
}

static int
find_place(md_state *state, PyObject *op, place *self)
{
    *self = (place){.handle = NULL};
    PyObject *own = array_behind(state, op); /* kept by `op`, which the caller holds */
    if (own != NULL) {
        return place_array(array_cast(own), self);
    }
    if (Py_IS_TYPE(op, state->buffer_type)) {
        return place_buffer(op, self);
    }
    return place_other(state, op, self);
}

/* ---- comparing ---- */

/* The search calls this from time to time: Ctrl-C ends it. */
static bool
check_signals(void *saved)
{
    PyThreadState **thread = saved;
    PyEval_RestoreThread(*thread);
    bool is_quiet = PyErr_CheckSignals() == 0;
    *thread = PyEval_SaveThread();
    return is_quiet;
}

/* The lowest byte must not lie before address 0, nor the highest past the end of the
 * addresses. */
static int
check_range(const place *self, uint64_t address)
{
    int64_t lowest, highest, first, end;
    layout_offset_bounds(&self->layout, &lowest, &highest);
    if (address <= INT64_MAX && layout_multiply(lowest, self->layout.itemsize, &first) &&
        layout_multiply(highest + 1, self->layout.itemsize, &end) &&
        layout_add((int64_t)address, first, &first) &&
        layout_add((int64_t)address, end, &end) && first >= 0) {
        return 0;
    }
    return errors_raise(PyExc_BufferError,
                        WHERE ": shape and strides reach outside of the address space.");
}

static PyObject *
compare(const place *a, const place *b, uint64_t a_address, uint64_t b_address)
{
    if (check_range(a, a_address) < 0 || check_range(b, b_address) < 0) {
        return NULL;
    }
    overlap_items first = {&a->layout, a_address}, second = {&b->layout, b_address};
    PyThreadState *thread = PyEval_SaveThread();
    overlap_answer answer = layout_overlap(&first, &second, check_signals, &thread);
    PyEval_RestoreThread(thread);
    return answer == OVERLAP_STOPPED ? NULL : PyBool_FromLong(answer == OVERLAP_YES);
}

static PyObject *
compare_places(const place *a, const place *b)
{
    if (a->is_nowhere || b->is_nowhere) {
        return PyBool_FromLong(false);
    }
    if (a->handle != NULL && a->handle == b->handle) {
        return compare(a, b, a->handle_offset, b->handle_offset);
    }
    if (a->address == NULL || b->address == NULL) {
        return PyBool_FromLong(false); /* private storage has no address to compare */
    }
    return compare(a, b, (uint64_t)(uintptr_t)a->address, (uint64_t)(uintptr_t)b->address);
}

PyDoc_STRVAR(
    shares_memory_doc,
    "shares_memory($module, a, b, /)\n--\n\n"
    "True if a byte of an item of a is a byte of an item of b.\n\n"
    "Exact for strided views: the odd and the even items of one buffer share nothing.\n"
    "MTLBuffers are compared, and CPU addresses where there are any: a Metal array over a\n"
    "NumPy array's memory shares it.\n\n"
    "Parameters\n----------\n"
    "a, b : Array, Buffer, or anything with __dlpack__, the buffer protocol or\n"
    "    __array_interface__, or a DLPack capsule (which stays unconsumed)\n\n"
    "Returns\n-------\n"
    "bool\n    False where one of them has no items.\n\n"
    "Raises\n------\n"
    "TypeError\n    a or b is neither an array nor a buffer.\n"
    "ImportError\n    NumPy is not installed: it reads __array_interface__.\n"
    "BufferError\n    The producer raises it, or from_dlpack would refuse the tensor.\n\n"
    "Memory and threads: nothing is copied.  The GIL is released while searching.  Slices of\n"
    "one array, dense arrays and one-dimensional views take microseconds; views with many\n"
    "unrelated strides take at most about a second per GiB they span, and past 2**31\n"
    "positions of the strides' common divisor, a search that Ctrl-C can end.\n\n"
    "Source: numpy.shares_memory has the same meaning.");

ARGS_FUNCTION(core_shares_memory, module, WHERE, 2, 2, 2, "a", "b")
{
    md_state *state = state_of_module(module);
    PyObject *result = NULL;
    place a, b;
    owners_drain(state);
    if (find_place(state, values[0], &a) == 0) {
        if (find_place(state, values[1], &b) == 0) {
            result = compare_places(&a, &b);
        }
        end_place(&b);
    }
    end_place(&a);
    return result;
}

PyMethodDef shares_memory_functions[] = {
    {WHERE, MD_FASTCALL(core_shares_memory), shares_memory_doc},
    {NULL, NULL, 0, NULL},
};
