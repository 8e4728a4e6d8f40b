/* array_copy_from.c: copy_from and copy_to: items between an Array and any other memory.
 *
 * Calls:   array_copy.h for the copy, asarray.h for what is no Array and has no buffer.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "array/array_copy.h"
#include "array/array_methods.h"
#include "exchange/asarray.h"
#include "python/args.h"
#include "streams/stream_object.h"

/* `value` as the other side of a copy with an Array.  -1 with what asarray raises. */
static int
open_side(array_side *side, md_state *state, PyObject *value, const import_request *request)
{
    if (Py_IS_TYPE(value, state->array_type)) {
        array_side_set(side, array_cast(value));
        return 0;
    }
    if (array_side_open_view(side, state, value)) {
        return 0;
    }
    PyObject *array = asarray_import(state, value, request);
    if (array == NULL) {
        return -1;
    }
    array_side_set(side, array_cast(array));
    side->kept = array;
    return 0;
}

/* ---- copy_from, copy_to ---- */

static PyObject *
copy_with(PyObject *op, const char *function, PyObject *const *values, bool is_written)
{
    /* what is written must be the memory itself */
    import_request request = {.copy = is_written ? -1 : 0};
    metal_stream *stream;
    array_side own, other;
    array_side_set(&own, array_cast(op));
    if (stream_convert_target(state_of(op), function, values[1], &stream) < 0) {
        return NULL;
    }
    int result = open_side(&other, state_of(op), values[0], &request);
    if (result == 0) {
        result = array_copy_sides(function, is_written ? &own : &other,
                                  is_written ? &other : &own, stream);
        array_side_close(&other);
    }
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char array_doc_copy_from[] =
    "copy_from($self, src, /, stream=None)\n--\n\n"
    "Write the items of `src` into this array.\n\n"
    "Parameters\n----------\n"
    "src : Array, or an object with DLPack or the buffer protocol\n"
    "    Of the same element type; broadcast to the shape of this array.  It may overlap this\n"
    "    array: the result is as if all of it were read first.\n"
    "stream : Stream or int, optional\n"
    "    The stream that does it, later; default: that of `with stream:`.  See below.\n\n"
    "Raises\n------\n"
    "TypeError\n    The element type differs: a[...] = src converts.\n"
    "ValueError\n    The shape does not fit, or this array is read-only.\n"
    "MemoryError, MetalError\n\n"
    "Either side may have any storage.  Nothing is written if it raises TypeError or\n"
    "ValueError.  Without a stream the copy is complete on return, as far as a caller can\n"
    "see; the GIL is released for large copies, which may use several threads:\n"
    "set_num_threads().  With a stream it returns at once, and later reads and writes of\n"
    "the buffers through this package come after it; a source in CPU memory is read before\n"
    "it returns.";

ARGS_METHOD(array_method_copy_from, op, "Array.copy_from", 1, 2, 1, "src", "stream")
{
    return copy_with(op, function, values, true);
}

const char array_doc_copy_to[] =
    "copy_to($self, dst, /, stream=None)\n--\n\n"
    "Write the items of this array into `dst`.\n\n"
    "Parameters\n----------\n"
    "dst : Array, or an object that shares its memory by DLPack or the buffer protocol\n"
    "    Writable, of the same element type; this array is broadcast to its shape.\n"
    "stream : Stream or int, optional\n"
    "    As in copy_from; only an Array is written later.\n\n"
    "Raises\n------\n"
    "TypeError\n    The element type differs.\n"
    "ValueError\n    The shape does not fit, or `dst` is read-only.\n"
    "CopyRequiredError\n"
    "    The memory of `dst` cannot be shared, so nothing can be written to it.\n"
    "MemoryError, MetalError\n\n"
    "Otherwise as copy_from().";

ARGS_METHOD(array_method_copy_to, op, "Array.copy_to", 1, 2, 1, "dst", "stream")
{
    return copy_with(op, function, values, false);
}
