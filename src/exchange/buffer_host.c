/* buffer_host.c: Buffer.from_host, foreign CPU memory as a Buffer.
 *
 * Calls:   host_memory.h for the buffer protocol; asarray.h, which ends there too, for
 *          producers.
 * Threads: the GIL is held; released while Metal wraps pages.
 */
#include "array/array_numpy.h"
#include "array/buffer.h"
#include "exchange/asarray.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "exchange/host_memory.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/owners.h"

static const char function[] = "Buffer.from_host";

/* ---- what shows its bytes ---- */

/* The bytes from the lowest to the highest item, as items of one byte. */
static int
find_bytes(const Py_buffer *view, char **address, strided_layout *out)
{
    int64_t first = 0, end = view->len == 0 ? 0 : view->itemsize, nbytes;
    layout_fault fault;
    bool fits = true;
    if (view->suboffsets != NULL) {
        return errors_raise(
            PyExc_BufferError,
            "%s: the memory is a table of pointers (suboffsets), not one range; copy it first.",
            function);
    }
    for (int axis = 0; axis < view->ndim && view->len > 0; axis++) {
        int64_t reach;
        fits &= layout_multiply(view->shape[axis] - 1, view->strides[axis], &reach);
        fits &= layout_add(reach < 0 ? first : end, reach, reach < 0 ? &first : &end);
    }
    fits &= !__builtin_sub_overflow(end, first, &nbytes);
    if (!fits || !layout_set_dense(out, 1, &nbytes, 1, 'C', &fault)) {
        return errors_raise(
            PyExc_BufferError,
            "%s: shape and strides reach 2**63 bytes or farther, which no memory has.",
            function);
    }
    *address = (char *)view->buf + first;
    return 0;
}

/* Make an Array of the bytes of a view that `owner` keeps. */
static PyObject *
array_of_view(md_state *state, const Py_buffer *view, PyObject *owner)
{
    strided_layout bytes;
    host_items items = {.layout = &bytes, .dtype = {kDLUInt, 8, 1}};
    const device_record *device = device_convert(state, function, NULL);
    if (device == NULL) {
        return NULL;
    }
    if (view->len > 0 && view->format != NULL && strchr(view->format, 'O') != NULL) {
        return PyErr_Format(
            PyExc_TypeError,
            "%s: the items are Python objects (format '%s'), which a GPU cannot use.", function,
            view->format);
    }
    return find_bytes(view, &items.address, &bytes) < 0
               ? NULL
               : host_memory_import_view(state, function, view, owner, &items, device, 0);
}

/* Steals `array`, which may be NULL. */
static PyObject *
buffer_of_array(PyObject *array)
{
    PyObject *buffer = array == NULL ? NULL : Py_XNewRef(array_buffer(array_cast(array)));
    Py_XDECREF(array);
    return buffer;
}

static PyObject *
buffer_of_bytes(md_state *state, PyObject *obj)
{
    const Py_buffer *view;
    PyObject *owner = host_memory_keep(function, obj, &view);
    PyObject *array = owner == NULL ? NULL : array_of_view(state, view, owner);
    Py_XDECREF(owner);
    return buffer_of_array(array);
}

/* ---- all others ---- */

/* DLPack producers. */
static PyObject *
buffer_of_producer(md_state *state, PyObject *obj)
{
    import_request request = {.copy = 0};
    int speaks = foreign_speaks(state, obj);
    if (speaks < 0) {
        return NULL;
    }
    if (!speaks) {
        return PyErr_Format(PyExc_TypeError,
                            "%s: %.100s has no memory to share; give an object with the buffer "
                            "protocol, a SharedMemory, or a CPU tensor that speaks DLPack.",
                            function, Py_TYPE(obj)->tp_name);
    }
    PyObject *array = asarray_import(state, obj, &request);
    if (array == NULL) {
        return NULL;
    }
    bool is_host =
        array_storage(array_cast(array))->is_host_memory || array_cast(array)->nitems == 0;
    PyObject *buffer = buffer_of_array(array);
    if (buffer != NULL && !is_host) {
        Py_DECREF(buffer);
        return PyErr_Format(PyExc_TypeError,
                            "%s: the memory of %.100s is Metal memory already; "
                            "asarray(x).buffer is its Buffer.",
                            function, Py_TYPE(obj)->tp_name);
    }
    return buffer;
}

/* NumPy raises ValueError for element types that the buffer protocol cannot name, and DLPack may
 * name them.  What has no DLPack says itself why it was refused. */
static PyObject *
buffer_by_another_way(md_state *state, PyObject *obj)
{
    if (!PyErr_ExceptionMatches(PyExc_ValueError) ||
        PyErr_ExceptionMatches(PyExc_BufferError)) {
        return NULL;
    }
    PyObject *refusal = errors_take();
    int speaks = foreign_speaks(state, obj);
    if (speaks == 0) {
        errors_restore(refusal);
        return NULL;
    }
    Py_DECREF(refusal);
    return speaks < 0 ? NULL : buffer_of_producer(state, obj);
}

static PyObject *
buffer_of_memory(md_state *state, PyObject *obj)
{
    if (Py_IS_TYPE(obj, state->array_type) || Py_IS_TYPE(obj, state->buffer_type) ||
        Py_IS_TYPE(obj, state->host_view_type)) {
        return PyErr_Format(
            PyExc_TypeError,
            "%s: the memory of %.100s is Metal memory already, and has a Buffer.", function,
            Py_TYPE(obj)->tp_name);
    }
    if (PyObject_CheckBuffer(obj)) {
        PyObject *buffer = buffer_of_bytes(state, obj);
        return buffer != NULL ? buffer : buffer_by_another_way(state, obj);
    }
    int is_shared = shared_memory_check(state, obj);
    if (is_shared != 0) {
        return is_shared < 0 ? NULL : buffer_of_bytes(state, obj);
    }
    return buffer_of_producer(state, obj);
}

/* ---- who may write ---- */

static PyObject *
with_permission(md_state *state, PyObject *buffer, PyObject *obj, int writable)
{
    metal_storage *storage = buffer_cast(buffer)->storage;
    if (writable == 1 && storage->is_readonly) {
        Py_DECREF(buffer);
        return errors_copy_required(
            state,
            "%s: the memory of %.100s is read-only, and writable=True requires writable "
            "memory; use asarray(x, copy=True).buffer.",
            function, Py_TYPE(obj)->tp_name);
    }
    if (writable == 0) {
        storage->is_readonly = true; /* nobody else knows it yet */
    }
    return buffer;
}

const char buffer_from_host_doc[] =
    "from_host($type, obj, *, writable=None)\n--\n\n"
    "Foreign CPU memory as a Buffer, without a copy.\n\n"
    "Parameters\n----------\n"
    "obj : object with the buffer protocol, SharedMemory, or CPU tensor that speaks DLPack\n"
    "    NumPy arrays, bytes, bytearray, mmap, array.array, tensors of torch, JAX and MLX\n"
    "    ...  For strided items: the bytes from the lowest to the highest address.\n"
    "writable : bool, optional\n"
    "    None: writable if the memory is.  True: require writable memory.  False: make the\n"
    "    Buffer read-only.\n\n"
    "Returns\n-------\nBuffer\n"
    "    Of shared storage on the default device.  Metal shares whole pages: byte 0 of the\n"
    "    MTLBuffer (`address`) is the start of the memory's first page, and the memory lies\n"
    "    in the bytes from `offset` to `size`.  Only these bytes are filled, copied and\n"
    "    shown as a memoryview; array() begins there.  Kernels bind `handle` with `offset`,\n"
    "    or with an Array's byte_offset, which includes it.\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n"
    "    Metal cannot share the memory (longer than max_buffer_length), or it is read-only\n"
    "    and writable=True.\n"
    "TypeError\n    The memory is Metal memory already, or obj has no memory.\n"
    "MetalError\n    There is no Metal device.\n\n"
    "Memory: obj is kept alive, and its memory stays in place (a bytearray cannot grow, an\n"
    "mmap cannot close), until the Buffer is closed and the last Array and export is gone.\n"
    "Takes microseconds for any size.\n"
    "Threads: the GIL is released while Metal wraps the pages.\n\n"
    "Source: MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:.";

ARGS_METHOD(buffer_from_host, type, "Buffer.from_host", 0, 1, 1, "obj", "writable")
{
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    int writable;
    if (args_tristate(function, "writable", values[1], &writable) < 0) {
        return NULL;
    }
    PyObject *buffer = buffer_of_memory(state, values[0]);
    return buffer == NULL ? NULL : with_permission(state, buffer, values[0], writable);
}
