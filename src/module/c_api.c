/* c_api.c: the functions behind metal_dlpack/include/metal_dlpack.h.
 *
 * Owns:    the table, static for the process.
 * Calls:   array*.h, buffer.h and dlpack_*.h; the contracts are the public header's.
 * Threads: the GIL is held; released while allocating, waiting and copying.
 */
#include "module/module.h"

#include <string.h>

#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "exchange/dlpack_export.h"
#include "exchange/dlpack_import.h"
#include "metal/storage.h"
#include "metal_dlpack/include/metal_dlpack.h"
#include "python/errors.h"
#include "python/owners.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

/* ---- looking ---- */

/* The slot is Array's alone, in every interpreter, and the type cannot be subclassed: no state
 * is looked up. */
static int
check_array(PyObject *op)
{
    const PyBufferProcs *procs = Py_TYPE(op)->tp_as_buffer;
    return procs != NULL && procs->bf_getbuffer == array_getbuffer;
}

/* -1 with TypeError. */
static int
require_array(const char *function, PyObject *op)
{
    if (check_array(op)) {
        return 0;
    }
    return errors_raise(PyExc_TypeError, "%s: an Array is needed, not %.100s.", function,
                        Py_TYPE(op)->tp_name);
}

static int
get_view(PyObject *op, metal_dlpack_view *out)
{
    memset(out, 0, sizeof *out);
    if (require_array("metal_dlpack->array_get", op) < 0) {
        return -1;
    }
    const ArrayObject *self = array_cast(op);
    metal_storage *storage = array_storage(self);
    storage_publish(storage); /* who has the handle can write on the GPU */
    out->handle = storage->handle;
    if (storage->address != NULL && self->nitems > 0) {
        out->address = storage->address + self->byte_offset;
    }
    out->byte_offset = self->byte_offset;
    out->nbytes = array_nbytes(self);
    out->nitems = self->nitems;
    out->shape = array_shape(self);
    out->strides = array_strides(self);
    out->ndim = self->ndim;
    out->storage = (int32_t)storage->mode + METAL_DLPACK_SHARED;
    out->is_readonly = self->is_readonly;
    out->is_padded = self->is_padded;
    out->dtype = (metal_dlpack_dtype){self->dtype.code, self->dtype.bits, self->dtype.lanes};
    return 0;
}

/* ---- making ---- */

/* -1 with ValueError. */
static int
convert_dtype(const char *function, metal_dlpack_dtype dtype, DLDataType *out)
{
    *out = (DLDataType){dtype.code, dtype.bits, dtype.lanes};
    if (dtype_is_known(*out)) {
        return 0;
    }
    return errors_raise(
        PyExc_ValueError,
        "%s: the element type (code %d, bits %d, lanes %d) is not one of DLPack 1.3.", function,
        (int)dtype.code, (int)dtype.bits, (int)dtype.lanes);
}

static int
convert_storage(md_state *state, const char *function, int storage, bridge_storage *out)
{
    if (storage == METAL_DLPACK_DEFAULT) {
        return storage_mode_convert(state, function, NULL, out);
    }
    if (storage < METAL_DLPACK_SHARED || storage > METAL_DLPACK_PRIVATE) {
        return errors_raise(PyExc_ValueError,
                            "%s: storage (%d) is not one of METAL_DLPACK_DEFAULT (0) to "
                            "METAL_DLPACK_PRIVATE (3).",
                            function, storage);
    }
    *out = (bridge_storage)(storage - METAL_DLPACK_SHARED);
    return 0;
}

/* A shape of no dimensions may come as NULL, which memcpy does not take; NULL with ValueError for
 * any other that is NULL. */
static const int64_t *
convert_shape(const char *function, int ndim, const int64_t *shape)
{
    static const int64_t nothing[1] = {0};
    if (shape == NULL && ndim > 0) {
        (void)errors_raise(PyExc_ValueError,
                           "%s: shape is NULL, and ndim is %d; give %d extents.", function,
                           ndim, ndim);
        return NULL;
    }
    return shape == NULL ? nothing : shape;
}

static PyObject *
new_array(int ndim, const int64_t *shape, metal_dlpack_dtype dtype, int storage)
{
    static const char function[] = "metal_dlpack->array_new";
    array_creation what = {.order = 'C',
                           .ndim = ndim,
                           .shape = convert_shape(function, ndim, shape)};
    md_state *state = what.shape == NULL ? NULL : state_of_interpreter();
    if (state == NULL || convert_dtype(function, dtype, &what.dtype) < 0) {
        return NULL;
    }
    what.device = device_convert(state, function, NULL);
    if (what.device == NULL || convert_storage(state, function, storage, &what.mode) < 0) {
        return NULL;
    }
    return array_allocate(state, function, &what);
}

/* Buffer.from_handle(handle, nbytes, owner=owner): its rules, its sentences. */
static PyObject *
wrap_handle(void *handle, size_t nbytes, PyObject *owner)
{
    md_state *state = state_of_interpreter();
    if (state == NULL) {
        return NULL;
    }
    if (nbytes > PY_SSIZE_T_MAX) {
        return PyErr_Format(PyExc_ValueError,
                            "metal_dlpack->buffer_wrap: nbytes (%zu) passes the end of any "
                            "MTLBuffer.",
                            nbytes);
    }
    PyObject *result = NULL;
    PyObject *number = PyLong_FromVoidPtr(handle);
    PyObject *size = number == NULL ? NULL : PyLong_FromSize_t(nbytes);
    PyObject *names = size == NULL ? NULL : Py_BuildValue("(s)", "owner");
    if (names != NULL) {
        PyObject *args[] = {number, size, owner == NULL ? Py_None : owner};
        result = buffer_from_handle((PyObject *)state->buffer_type, args, 2, names);
    }
    Py_XDECREF(names);
    Py_XDECREF(size);
    Py_XDECREF(number);
    return result;
}

/* -1 with ValueError or CopyRequiredError. */
static int
convert_layout(md_state *state, int ndim, const int64_t *shape, const int64_t *strides,
               DLDataType dtype, strided_layout *out)
{
    static const char function[] = "metal_dlpack->buffer_array";
    layout_fault fault;
    shape = convert_shape(function, ndim, shape);
    if (shape == NULL) {
        return -1;
    }
    if (!layout_set(out, ndim, shape, strides, dtype_itemsize(dtype), 0, &fault)) {
        (void)errors_from_layout(state, function, &fault);
        return -1;
    }
    if (!dtype_is_whole_bytes(dtype) && !layout_is_contiguous_c(out)) {
        return errors_raise(PyExc_ValueError,
                            "%s: sub-byte items must be compact; pass NULL for strides.",
                            function);
    }
    return 0;
}

static PyObject *
array_over(PyObject *buffer, int ndim, const int64_t *shape, const int64_t *strides,
           metal_dlpack_dtype dtype, int64_t byte_offset)
{
    static const char function[] = "metal_dlpack->buffer_array";
    DLDataType converted;
    strided_layout layout;
    md_state *state = state_of_interpreter();
    if (state == NULL) {
        return NULL;
    }
    if (!Py_IS_TYPE(buffer, state->buffer_type)) {
        return PyErr_Format(PyExc_TypeError, "%s: a Buffer is needed, not %.100s.", function,
                            Py_TYPE(buffer)->tp_name);
    }
    if (convert_dtype(function, dtype, &converted) < 0 ||
        convert_layout(state, ndim, shape, strides, converted, &layout) < 0) {
        return NULL;
    }
    /* PyObject_CallMethod with "N" leaks its arguments if it cannot look the method up. */
    PyObject *result = NULL;
    PyObject *args[] = {layout_object_new(state->layout_type, &layout),
                        dtype_type_from_dl(state, converted), PyLong_FromLongLong(byte_offset)};
    if (args[0] != NULL && args[1] != NULL && args[2] != NULL) {
        result = array_from_buffer(buffer, args, 3, NULL);
    }
    Py_XDECREF(args[2]);
    Py_XDECREF(args[1]);
    Py_XDECREF(args[0]);
    return result;
}

/* ---- DLPack ---- */

/* -1 with ValueError. */
static int
check_copy(const char *function, int copy)
{
    if (copy >= -1 && copy <= 1) {
        return 0;
    }
    return errors_raise(PyExc_ValueError, "%s: copy (%d) is none of -1, 0 and 1.", function,
                        copy);
}

static PyObject *
import_tensor(DLManagedTensorVersioned *tensor, int copy)
{
    import_request request = {.copy = copy};
    if (check_copy("metal_dlpack->array_from_dlpack", copy) < 0) {
        owners_delete_tensor(tensor, true);
        return NULL;
    }
    return dlpack_import_managed(tensor, "a caller of the C API", &request);
}

static DLManagedTensorVersioned *
export_tensor(PyObject *op, int copy)
{
    static const char function[] = "metal_dlpack->array_to_dlpack";
    export_request request = {.is_versioned = true, .device = kDLMetal, .copy = copy};
    if (require_array(function, op) < 0 || check_copy(function, copy) < 0) {
        return NULL;
    }
    return dlpack_export(array_cast(op), &request);
}

/* ---- the items ---- */

/* What `reserved` holds: the mapping without its origin, which is public. */
_Static_assert(sizeof(array_mapping) - sizeof(char *) <=
                   sizeof((metal_dlpack_access *)0)->reserved,
               "an array_mapping must fit a metal_dlpack_access");
_Static_assert(offsetof(array_mapping, origin) == 0, "the origin is the address");

static int
begin_access(PyObject *op, int for_writing, metal_dlpack_access *out)
{
    static const char function[] = "metal_dlpack->array_begin";
    array_mapping mapping;
    memset(out, 0, sizeof *out);
    if (require_array(function, op) < 0 ||
        array_map(function, array_cast(op), for_writing ? MAP_WRITE : MAP_READ, &mapping) < 0) {
        return -1;
    }
    memcpy(out, &mapping, sizeof mapping);
    return 0;
}

/* Can what was written go back to `op`?  -1 with TypeError or ValueError. */
static int
check_written(const char *function, PyObject *op, const array_mapping *mapping)
{
    if (require_array(function, op) < 0) {
        return -1;
    }
    if (mapping->access != MAP_WRITE) {
        return errors_raise(PyExc_ValueError,
                            "%s: the access was begun for reading, so nothing is written back; "
                            "begin it for writing.",
                            function);
    }
    touched_bytes bytes = array_touched_bytes(array_cast(op));
    if (mapping->stage != NULL && (bytes.offset_bytes != (size_t)mapping->first_bytes ||
                                   bytes.nbytes != (size_t)mapping->nbytes)) {
        return errors_raise(PyExc_ValueError,
                            "%s: the access was begun on another Array, so nothing is written "
                            "back; end it on the same.",
                            function);
    }
    return 0;
}

static int
end_access(PyObject *op, metal_dlpack_access *access, int is_written)
{
    static const char function[] = "metal_dlpack->array_end";
    array_mapping mapping;
    memcpy(&mapping, access, sizeof mapping);
    memset(access, 0, sizeof *access); /* a second end does nothing */
    bool is_misused = is_written && check_written(function, op, &mapping) < 0;
    int result = array_unmap(function, (ArrayObject *)op, &mapping, is_written && !is_misused);
    return is_misused ? -1 : result;
}

/* ---- the table ---- */

static const metal_dlpack_api table = {
    .major = METAL_DLPACK_API_MAJOR,
    .minor = METAL_DLPACK_API_MINOR,
    .array_check = check_array,
    .array_get = get_view,
    .array_new = new_array,
    .buffer_wrap = wrap_handle,
    .buffer_array = array_over,
    .array_from_dlpack = import_tensor,
    .array_to_dlpack = export_tensor,
    .array_begin = begin_access,
    .array_end = end_access,
};

int
c_api_add_capsule(PyObject *module)
{
    PyObject *capsule = PyCapsule_New((void *)&table, METAL_DLPACK_API_CAPSULE, NULL);
    int result = capsule == NULL ? -1 : PyModule_AddObjectRef(module, "_C_API", capsule);
    Py_XDECREF(capsule);
    return result;
}
