/* array_host.c: an Array as CPU memory: __array__, __array_interface__ and the host view; the
 * buffer protocol is in array_request.c.
 *
 * Owns:    the HostView type: one reference to its Array.
 * Calls:   array_numpy.h for views and copies, dlpack_export.h.
 * Threads: the GIL is held; released while waiting.
 */
#include "array/array.h"

#include <structmember.h>

#include "array/array_map.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "exchange/dlpack_export.h"
#include "metal/lookup.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/wait_rule.h"
#include "values/layout_type_object.h"

/* ---- __array__ ---- */

/* A NumPy array: a view where NumPy can look at the memory, else a copy (`*is_fresh`). */
static PyObject *
numpy_of_any_storage(ArrayObject *self, int copy, bool *is_fresh)
{
    *is_fresh = false;
    if (array_numpy_can_view(self)) {
        return array_numpy_view("Array.__array__", self);
    }
    if (copy == 0) {
        return errors_copy_required(state_of((PyObject *)self),
                                    "Array.__array__: %s, so a copy is needed and copy=False "
                                    "forbids it; pass copy=None.",
                                    array_is_packed(self)
                                        ? "NumPy has one byte for each item"
                                        : "private storage has no CPU address");
    }
    *is_fresh = true;
    return array_numpy_copy("Array.__array__", self);
}

/* Has the view another dtype than `dtype`?  1 or 0, and `*wanted`, NumPy's, is owned (+1); or -1 with
 * an exception. */
static int
wants_other_type(PyObject *view, PyObject *dtype, PyObject **wanted)
{
    PyObject *numpy = array_numpy_module("Array.__array__");
    *wanted = numpy == NULL ? NULL : PyObject_CallMethod(numpy, "dtype", "(O)", dtype);
    Py_XDECREF(numpy);
    PyObject *present = *wanted == NULL ? NULL : PyObject_GetAttrString(view, "dtype");
    int is_other = present == NULL ? -1 : PyObject_RichCompareBool(present, *wanted, Py_NE);
    Py_XDECREF(present);
    return is_other;
}

const char array_doc_array[] =
    "__array__($self, /, dtype=None, copy=None)\n--\n\n"
    "A NumPy array: of the same memory for shared and managed storage, a copy for private\n"
    "storage and for packed sub-byte items, of which NumPy gives each a byte.\n\n"
    "Waits for pending GPU work on the buffer.  Types that NumPy lacks come from ml_dtypes.\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n    copy=False, and the storage is private, the items are packed, or "
    "the dtype differs.\n\n"
    "Source: NumPy's array interface protocol, NEP 50 keyword `copy`.";

ARGS_METHOD(array_method_array, op, "Array.__array__", 0, 2, 0, "dtype", "copy")
{
    int copy;
    bool is_fresh;
    if (args_tristate(function, "copy", values[1], &copy) < 0 ||
        array_raise_unheard(array_cast(op)) < 0) {
        return NULL;
    }
    PyObject *view = numpy_of_any_storage(array_cast(op), copy, &is_fresh);
    if (view == NULL) {
        array_forget_unheard(array_cast(op)); /* the caller hears it */
        return NULL;
    }
    PyObject *wanted = NULL, *result = NULL;
    int is_other = args_is_given(values[0]) ? wants_other_type(view, values[0], &wanted) : 0;
    if (is_other == 1 && copy == 0) {
        (void)errors_copy_required(state_of(op),
                                   "Array.__array__: converting to %S needs a copy and "
                                   "copy=False forbids it; pass copy=None.",
                                   wanted);
    }
    else if (is_other == 1) {
        result = PyObject_CallMethod(view, "astype", "(O)", wanted);
    }
    else if (is_other == 0) {
        bool must_copy = copy == 1 && !is_fresh;
        result = must_copy ? PyObject_CallMethod(view, "copy", NULL) : Py_NewRef(view);
    }
    Py_XDECREF(wanted);
    Py_DECREF(view);
    return result;
}

const char array_doc_to_numpy[] =
    "to_numpy($self, /)\n--\n\n"
    "Return np.asarray(self), for libraries that call this name, such as matplotlib.\n\n"
    "Returns\n-------\nnumpy.ndarray\n    As of __array__().\n\n"
    "Raises\n------\nImportError\n    NumPy is not installed, or ml_dtypes for a type of its "
    "own.\n"
    "TypeError\n    Neither has the type.\n"
    "MetalError\n\n"
    "Source: matplotlib, cbook._unpack_to_numpy.";

PyObject *
array_method_to_numpy(PyObject *op, PyObject *Py_UNUSED(argument))
{
    return array_numpy_asarray("Array.to_numpy", op);
}

PyObject *
array_get_ctypes(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *numpy = PyObject_CallMethod(op, "__array__", "(OO)", Py_None, Py_False);
    PyObject *result = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "ctypes");
    Py_XDECREF(numpy);
    return result;
}

/* ---- the host view ---- */

typedef struct {
    PyObject_HEAD
    ArrayObject *array; /* owned */
} HostViewObject;

static inline ArrayObject *
array_of_host_view(PyObject *op)
{
    return ((HostViewObject *)op)->array;
}

PyObject *
array_behind(md_state *state, PyObject *op)
{
    if (Py_IS_TYPE(op, state->array_type)) {
        return op;
    }
    return Py_IS_TYPE(op, state->host_view_type) ? (PyObject *)array_of_host_view(op) : NULL;
}

/* SPEC export-host-view */
PyObject *
array_get_host(PyObject *op, void *Py_UNUSED(closure))
{
    md_state *state = state_of(op);
    if (array_storage(array_cast(op))->mode == BRIDGE_PRIVATE) {
        return errors_copy_required(
            state,
            "Array.host: private storage has no CPU address; use copy(storage='shared').host.");
    }
    HostViewObject *self = PyObject_GC_New(HostViewObject, state->host_view_type);
    if (self != NULL) {
        self->array = array_cast(Py_NewRef(op));
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(
    host_view_dlpack_doc,
    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "Array.__dlpack__ with dl_device=(1, 0) as the default.");

static PyObject *
host_view_dlpack(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return dlpack_export_call(array_of_host_view(op), args, nargs, kwnames, kDLCPU);
}

PyDoc_STRVAR(host_view_dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n(1, 0): kDLCPU.");

static PyObject *
host_view_dlpack_device(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("(ii)", kDLCPU, 0);
}

PyDoc_STRVAR(host_view_array_doc, "__array__($self, /, dtype=None, copy=None)\n--\n\n"
                                  "As Array.__array__.");

static PyObject *
host_view_array(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return array_method_array((PyObject *)array_of_host_view(op), args, nargs, kwnames);
}

PyDoc_STRVAR(
    host_view_reduce_doc,
    "__reduce__($self, /)\n--\n\n"
    "Pickle as the host view of an equal Array, which carries the items; copy.copy() is\n"
    "another view of the same memory, copy.deepcopy() one of a copy.");

static PyObject *
host_view_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *builtins = PyImport_ImportModule("builtins");
    PyObject *get = builtins == NULL ? NULL : PyObject_GetAttrString(builtins, "getattr");
    Py_XDECREF(builtins);
    return get == NULL ? NULL : Py_BuildValue("N(Os)", get, array_of_host_view(op), "host");
}

static PyMethodDef host_view_methods[] = {
    {"__dlpack__", MD_FASTCALL(host_view_dlpack), host_view_dlpack_doc},
    {"__dlpack_device__", host_view_dlpack_device, METH_NOARGS, host_view_dlpack_device_doc},
    {"__array__", MD_FASTCALL(host_view_array), host_view_array_doc},
    {"__reduce__", host_view_reduce, METH_NOARGS, host_view_reduce_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef host_view_members[] = {
    {"array", T_OBJECT_EX, offsetof(HostViewObject, array), READONLY,
     PyDoc_STR("The Array that is viewed.")},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
host_view_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<host view of %R>", (PyObject *)array_of_host_view(op));
}

/* The Array gives the view and counts it. */
static int
host_view_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    return PyObject_GetBuffer((PyObject *)array_of_host_view(op), view, flags);
}

static int
host_view_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(array_of_host_view(op));
    return 0;
}

static void
host_view_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    Py_DECREF((PyObject *)array_of_host_view(op));
    state_free_object(op);
}

PyDoc_STRVAR(
    host_view_doc,
    "The memory of an Array as a CPU array: Array.host.\n\n"
    "It reports __dlpack_device__() == (1, 0) and exports kDLCPU tensors of the same bytes,\n"
    "for consumers that take nothing else (JAX, MLX on Linux).");

static PyType_Slot host_view_slots[] = {
    {Py_tp_doc, (void *)host_view_doc},     {Py_tp_dealloc, host_view_dealloc},
    {Py_tp_traverse, host_view_traverse},   {Py_tp_methods, host_view_methods},
    {Py_tp_members, host_view_members},     {Py_tp_repr, host_view_repr},
    {Py_bf_getbuffer, host_view_getbuffer}, {0, NULL},
};

MD_SPEC(host_view, "HostView", sizeof(HostViewObject), 0, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* ---- __array_interface__ ----
 *
 * Private storage has no such attribute, nor has a type for which NumPy has no name. */

/* NumPy's name of an element type: '<f4'.  -1 with AttributeError: it has none. */
static int
write_typestr(DLDataType dtype, char out[8])
{
    static const char kinds[] = {
        [kDLInt] = 'i', [kDLUInt] = 'u', [kDLFloat] = 'f', [kDLComplex] = 'c', [kDLBool] = 'b'};
    if (dtype_buffer_format(dtype) == NULL) {
        return errors_raise(
            PyExc_AttributeError,
            "Array.__array_interface__: NumPy has no name for %s; use np.asarray(a).",
            dtype_name(dtype).text);
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
    if (storage->mode != BRIDGE_PRIVATE) {
        return 0;
    }
    return errors_raise(
        PyExc_AttributeError,
        "Array.__array_interface__: private storage has no address; use np.asarray(a).");
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
        wait_rule_for_cpu(op, "Array.__array_interface__", &bytes, !self->is_readonly) < 0) {
        return NULL;
    }
    lookup_publish_readonly(storage);
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
