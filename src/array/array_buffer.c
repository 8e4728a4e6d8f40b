/* array_buffer.c: Buffer.array(): an Array over the bytes of a Buffer, its bounds checked.
 *
 * Calls:   array.h to make it, layout.h and dtype_bits.h for the arithmetic.
 * Threads: the GIL is held.
 */
#include "array/array.h"
#include "python/args.h"
#include "python/errors.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

/* The items lie in the bytes from `first` up to `end`. */
static int
check_within_buffer(const metal_storage *storage, int64_t first, int64_t end)
{
    if (first < 0 || (uint64_t)end > storage->nbytes) {
        return errors_raise(
            PyExc_ValueError,
            "Buffer.array: the items lie in bytes %lld to %lld, past the Buffer's %zu bytes.",
            (long long)first, (long long)end, storage->nbytes);
    }
    if ((uint64_t)first < storage->first_byte && end > first) {
        return errors_raise(
            PyExc_ValueError,
            "Buffer.array: the items begin at byte %lld, and the bytes before %zu of this "
            "Buffer lie outside the wrapped host memory; count byte_offset from Buffer.offset.",
            (long long)first, storage->first_byte);
    }
    return 0;
}

/* Element 0 begins on a byte, and every item on a multiple of its alignment.  The items lie
 * within a Buffer, so that the offset in bits fits. */
static int
check_alignment(const strided_layout *layout, int64_t item_bits, DLDataType dtype,
                int64_t byte_offset, int64_t first)
{
    int first_bit = (int)(layout->offset * (item_bits % 8) & 7);
    if (first_bit != 0) {
        return errors_raise(PyExc_ValueError,
                            "Buffer.array: the layout's slice_offset (%lld) is at bit %d of a "
                            "byte; an Array begins on a byte.",
                            (long long)layout->offset, first_bit);
    }
    if (first % dtype_alignment(dtype) != 0) {
        return errors_raise(PyExc_ValueError,
                            "Buffer.array: byte_offset (%lld) is not a multiple of the "
                            "element's alignment (%lld bytes).",
                            (long long)byte_offset, (long long)dtype_alignment(dtype));
    }
    return 0;
}

static int
check_items(const metal_storage *storage, const strided_layout *layout, DLDataType dtype,
            bool is_padded, int64_t byte_offset)
{
    int64_t item_bits = dtype_step_bits(dtype, is_padded);
    int64_t first = 0, end = 0;
    bool is_counted =
        layout_volume(layout) == 0 || bits_byte_span(layout, item_bits, 0, &first, &end);
    if (!is_counted || !layout_add(byte_offset, first, &first) ||
        !layout_add(byte_offset, end, &end)) { /* 64 bits do not count so far */
        return errors_raise(PyExc_ValueError,
                            "Buffer.array: the items reach 2**60 bytes or farther from the "
                            "Buffer's start, and it has %zu bytes.",
                            storage->nbytes);
    }
    if (check_within_buffer(storage, first, end) < 0) {
        return -1;
    }
    return check_alignment(layout, item_bits, dtype, byte_offset, first);
}

static int
convert_layout(md_state *state, PyObject *value, DLDataType dtype, strided_layout *out)
{
    if (Py_IS_TYPE(value, state->layout_type)) {
        layout_read(value, out);
        if (out->itemsize != dtype_itemsize(dtype)) {
            return errors_raise(
                PyExc_ValueError,
                "Buffer.array: the layout's itemsize (%lld) is not the dtype's (%lld).",
                (long long)out->itemsize, (long long)dtype_itemsize(dtype));
        }
        return 0;
    }
    int64_t shape[LAYOUT_MAX_NDIM];
    int ndim;
    layout_fault fault;
    if (args_int64s("Buffer.array", "shape", value, shape, LAYOUT_MAX_NDIM, &ndim) < 0) {
        return -1;
    }
    if (!layout_set_dense(out, ndim, shape, dtype_itemsize(dtype), 'C', &fault)) {
        (void)errors_from_layout(state, "Buffer.array", &fault);
        return -1;
    }
    return 0;
}

const char array_from_buffer_doc[] =
    "array($self, layout_or_shape, dtype='float32', byte_offset=None, padded=False)\n--\n\n"
    "An Array over these bytes.\n\n"
    "Parameters\n----------\n"
    "layout_or_shape : StridedLayout, int or tuple of int\n"
    "    A shape means C order.\n"
    "dtype : dtype or a name of one\n"
    "byte_offset : int, optional\n"
    "    Where element 0 is, in bytes from byte 0 of the MTLBuffer; a multiple of the\n"
    "    element's alignment.  Default: offset, which is 0 except over host memory.\n"
    "padded : bool\n"
    "    Sub-byte items have a byte each, in its lowest bits; default: they are packed.\n\n"
    "Returns\n-------\nArray\n\n"
    "Raises\n------\n"
    "ValueError\n    Items would lie outside the Buffer, or unaligned.\n\n"
    "Memory: no copy; the Array keeps the Buffer open.";

ARGS_METHOD(array_from_buffer, buffer, "Buffer.array", 0, 4, 1, "layout_or_shape", "dtype",
            "byte_offset", "padded")
{
    md_state *state = state_of(buffer);
    int is_padded = 0;
    DLDataType dtype = {kDLFloat, 32, 1};
    strided_layout layout;
    int64_t byte_offset = 0;
    bool has_offset;
    has_offset = args_is_given(values[2]);
    if ((values[1] != NULL && dtype_type_convert(state, function, values[1], &dtype) < 0) ||
        (has_offset && args_int64(function, "byte_offset", values[2], &byte_offset) < 0) ||
        (values[3] != NULL && (is_padded = PyObject_IsTrue(values[3])) < 0) ||
        (is_padded && array_check_padding(function, dtype) < 0) ||
        convert_layout(state, values[0], dtype, &layout) < 0) {
        return NULL;
    }
    /* last: an argument's __index__ can close it */
    metal_storage *storage = buffer_open_storage(function, buffer_cast(buffer));
    if (storage == NULL) {
        return NULL;
    }
    byte_offset = has_offset ? byte_offset : (int64_t)storage->first_byte;
    if (layout_volume(&layout) == 0) {
        layout.offset = 0; /* no items are nowhere */
    }
    if (check_items(storage, &layout, dtype, is_padded, byte_offset) < 0) {
        return NULL;
    }
    return array_new(state, buffer, byte_offset, &layout, dtype, false, is_padded);
}
