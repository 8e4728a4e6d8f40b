/* array_interface.c: Array.__array_interface__: where the items of shared storage lie.
 *
 * Calls:   wait_rule.h to wait, layout.h and dtype.h for the facts.
 * Threads: the GIL is held; released while waiting.
 * Invariant: it says nothing that it would have to take back.  Nobody gives the address back,
 *          so that managed storage, whose views are counted, has no such attribute, and neither
 *          has private storage nor a type for which NumPy has no name.
 */
#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "metal/readonly.h"
#include "python/errors.h"
#include "streams/wait_rule.h"
#include "values/layout_type_object.h"

/* NumPy's name of an element type: '<f4'.  -1 with AttributeError: it has none. */
static int
write_typestr(DLDataType dtype, char out[8])
{
    static const char kinds[] = {
        [kDLInt] = 'i', [kDLUInt] = 'u', [kDLFloat] = 'f', [kDLComplex] = 'c', [kDLBool] = 'b'};
    if (dtype_buffer_format(dtype) == NULL) {
        char name[DTYPE_NAME_MAX];
        dtype_write_name(dtype, name);
        PyErr_Format(PyExc_AttributeError,
                     "Array.__array_interface__: NumPy has no name for %s; use np.asarray(a).",
                     name);
        return -1;
    }
    int itemsize = (int)dtype_itemsize(dtype);
    (void)PyOS_snprintf(out, 8, "%c%c%d", itemsize == 1 ? '|' : '<', kinds[dtype.code],
                        itemsize);
    return 0;
}

/* Strides in bytes, or None for items in C order: owned (+1). */
static PyObject *
strides_in_bytes(const ArrayObject *self)
{
    strided_layout layout;
    array_get_layout(self, &layout);
    if (layout_is_contiguous_c(&layout)) {
        Py_RETURN_NONE;
    }
    for (int axis = 0; axis < layout.ndim; axis++) {
        layout.strides[axis] = layout_stride_nbytes(&layout, axis);
    }
    return layout_tuple(layout.strides, layout.ndim);
}

static int
check_storage(const metal_storage *storage)
{
    if (storage->mode == BRIDGE_SHARED) {
        return 0;
    }
    PyErr_Format(PyExc_AttributeError,
                 "Array.__array_interface__: %s storage has no address that stays current; use "
                 "np.asarray(a).",
                 storage->mode == BRIDGE_PRIVATE ? "private" : "managed");
    return -1;
}

PyObject *
array_get_interface(PyObject *op, void *Py_UNUSED(closure))
{
    ArrayObject *self = array_cast(op);
    metal_storage *storage = array_storage(self);
    touched_bytes bytes = array_watched_bytes(self);
    char typestr[8];
    if (array_raise_unheard(self) < 0 || check_storage(storage) < 0 ||
        write_typestr(self->dtype, typestr) < 0 ||
        wait_rule_for_host_view(op, "Array.__array_interface__", &bytes, self->is_readonly) <
            0) {
        return NULL;
    }
    readonly_publish(storage);
    const char *first = storage->address; /* NULL without items */
    first = first == NULL ? NULL : first + self->byte_offset;
    PyObject *shape = layout_tuple(array_shape(self), self->ndim);
    PyObject *strides = shape == NULL ? NULL : strides_in_bytes(self);
    if (strides == NULL) {
        Py_XDECREF(shape);
        return NULL;
    }
    return Py_BuildValue("{s:i,s:N,s:s,s:N,s:(NN)}", "version", 3, "shape", shape, "typestr",
                         typestr, "strides", strides, "data", PyLong_FromVoidPtr((void *)first),
                         PyBool_FromLong(self->is_readonly));
}
