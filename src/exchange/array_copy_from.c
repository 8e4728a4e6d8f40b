/* array_copy_from.c: copy_from and copy_to: items between an Array and any other memory.
 *
 * Calls:   array_sides.h for the copy, asarray.h for what is no Array and has no buffer.
 * Threads: the GIL is held; released round waits and large copies.
 */
#include "array/array_methods.h"
#include "array/array_sides.h"
#include "exchange/asarray.h"
#include "python/args.h"
#include "streams/stream_order.h"

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

const char array_doc_copy_from[] =
    "copy_from($self, src, /, stream=None)\n--\n\n"
    "Write the items of `src` into this array.\n\n"
    "Parameters\n----------\n"
    "src : Array, or what speaks DLPack or the buffer protocol\n"
    "    Of the same element type; broadcast to the shape of this array.  It may overlap this\n"
    "    array: the result is as if it had been read whole first.\n"
    "stream : Stream or int, optional\n"
    "    Who does it, later; default: the `with stream:` of the thread.  See below.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type: a[...] = src converts.\n"
    "ValueError\n    The shape does not fit, or this array is read-only.\n"
    "MemoryError, MetalError\n\n"
    "Any storage on either side.  Nothing is written where it raises TypeError or ValueError.\n"
    "Without a stream it returns when nobody can see that it is not done; the GIL is released "
    "for\n"
    "large copies, which may use several threads: set_num_threads().  With one it returns at "
    "once,\n"
    "and whoever reads or writes the buffers through this package comes after it; a source in "
    "CPU\n"
    "memory is read before the return.";

PyObject *
array_method_copy_from(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy_from", 1, 2, 1, {"src", "stream", NULL}};
    static const import_request as_it_is = {.copy = -1};
    PyObject *values[2];
    metal_stream *stream;
    array_side to, from;
    array_side_set(&to, array_cast(op));
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        stream_convert_target(state_of(op), "Array.copy_from", values[1], &stream) < 0) {
        return NULL;
    }
    int result = open_side(&from, state_of(op), values[0], &as_it_is);
    if (result == 0) {
        result = array_sides_copy("Array.copy_from", &to, &from, stream);
        array_side_close(&from);
    }
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char array_doc_copy_to[] =
    "copy_to($self, dst, /, stream=None)\n--\n\n"
    "Write the items of this array into `dst`.\n\n"
    "Parameters\n----------\n"
    "dst : Array, or what lends its memory by DLPack or the buffer protocol\n"
    "    Writable, of the same element type; this array is broadcast to its shape.\n"
    "stream : Stream or int, optional\n"
    "    As in copy_from; only an Array is written later.\n\n"
    "Raises\n------\n"
    "TypeError\n    Another element type.\n"
    "ValueError\n    The shape does not fit, or `dst` is read-only.\n"
    "CopyRequiredError\n    The memory of `dst` cannot be shared, so that nothing could be "
    "written to it.\n"
    "MemoryError, MetalError\n\n"
    "Otherwise as copy_from().";

PyObject *
array_method_copy_to(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.copy_to", 1, 2, 1, {"dst", "stream", NULL}};
    static const import_request shared = {.copy = 0};
    PyObject *values[2];
    metal_stream *stream;
    array_side to, from;
    array_side_set(&from, array_cast(op));
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        stream_convert_target(state_of(op), "Array.copy_to", values[1], &stream) < 0) {
        return NULL;
    }
    int result = open_side(&to, state_of(op), values[0], &shared);
    if (result == 0) {
        result = array_sides_copy("Array.copy_to", &to, &from, stream);
        array_side_close(&to);
    }
    stream_release(stream);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
