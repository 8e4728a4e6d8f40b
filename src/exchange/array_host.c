/* array_host.c: an Array as CPU memory: the buffer protocol, __array__, and the host view.
 *
 * Owns:    the HostView type: one reference to its Array.
 * Calls:   wait_rule.h to wait, storage.h to count writable views, array_numpy.h.
 * Threads: the GIL is held; released while waiting.
 */
#include "array/array.h"
#include "array/array_map.h"
#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "exchange/dlpack_export.h"
#include "metal/readonly.h"
#include "metal/storage_sharing.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/wait_rule.h"

/* ---- the buffer protocol ---- */

#define EVERY_ORDER (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS)

/* The order of items that a request asks for.  Without strides the caller counts in C order. */
typedef struct wanted_order {
    bool c, f, any;
} wanted_order;

static wanted_order
order_of_flags(int flags)
{
    return (wanted_order){
        .c = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
             (flags & PyBUF_STRIDES) != PyBUF_STRIDES,
        .f = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS,
        .any = (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS,
    };
}

static bool
has_order(const ArrayObject *self, int flags)
{
    if ((flags & EVERY_ORDER) == PyBUF_STRIDES) { /* any: what most callers want */
        return true;
    }
    wanted_order wanted = order_of_flags(flags);
    strided_layout layout;
    array_get_layout(self, &layout);
    bool is_c = layout_is_contiguous_c(&layout), is_f = layout_is_contiguous_f(&layout);
    return (is_c || !wanted.c) && (is_f || !wanted.f) && (is_c || is_f || !wanted.any);
}

/* Why this view cannot be given, as an exception; 0 if it can. */
static int
check_request(ArrayObject *self, const char *format, int flags)
{
    if (array_storage(self)->mode == BRIDGE_PRIVATE) {
        (void)errors_copy_required(state_of((PyObject *)self),
                                   "memoryview(Array): private storage has no CPU address; "
                                   "use copy(storage='shared').");
        return -1;
    }
    if (format == NULL) {
        char name[DTYPE_NAME_MAX];
        dtype_write_name(self->dtype, name);
        PyErr_Format(PyExc_BufferError,
                     "memoryview(Array): the buffer protocol has no letter for %s; use "
                     "np.asarray(a), or view the items as integers.",
                     name);
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) && self->is_readonly) {
        PyErr_SetString(PyExc_BufferError, "memoryview(Array): the array is read-only.");
        return -1;
    }
    if (!has_order(self, flags)) {
        PyErr_SetString(PyExc_BufferError,
                        "memoryview(Array): the caller wants contiguous items and "
                        "this array is strided; use copy().");
        return -1;
    }
    return 0;
}

/* Strides in bytes.  Of contiguous items they follow from the order, whatever the axes of
 * extent 1 say: consumers compare them.  Source: NumPy's _buffer_info_new. */
static void
write_byte_strides(const ArrayObject *self, bool prefers_f, int64_t *out)
{
    int64_t itemsize = dtype_itemsize(self->dtype);
    strided_layout layout;
    array_get_layout(self, &layout);
    bool is_c = layout_is_contiguous_c(&layout), is_f = layout_is_contiguous_f(&layout);
    if (!is_c && !is_f) {
        for (int axis = 0; axis < self->ndim; axis++) {
            int64_t nbytes; /* no step is taken where it is too long */
            out[axis] =
                layout_multiply(layout.strides[axis], itemsize, &nbytes) ? nbytes : itemsize;
        }
        return;
    }
    bool from_first = is_f && (prefers_f || !is_c);
    uint64_t step =
        (uint64_t)itemsize; /* wraps in an empty array, whose strides lead nowhere */
    for (int place = 0; place < self->ndim; place++) {
        int axis = from_first ? place : self->ndim - 1 - place;
        out[axis] = (int64_t)step;
        step *= (uint64_t)layout.shape[axis];
    }
}

/* The strides for a request.  They are the Array's own, which live as long as the view does; one
 * that asks for Fortran's order gets strides of its own (`*is_own`, for PyMem_Free), as they can
 * differ along axes of extent 1.  NULL with MemoryError. */
static int64_t *
strides_for(ArrayObject *self, int flags, bool *is_own)
{
    *is_own = order_of_flags(flags).f;
    if (*is_own) {
        int64_t *strides = PyMem_New(int64_t, self->ndim);
        if (strides == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        write_byte_strides(self, true, strides);
        return strides;
    }
    if (!self->has_byte_strides) {
        write_byte_strides(self, false, array_byte_strides(self));
        self->has_byte_strides = true;
    }
    return array_byte_strides(self);
}

/* What the request asks for, and NULL for the rest, as NumPy answers: without PyBUF_ND there
 * are bytes and no axes.  -1 with MemoryError.  SPEC PEP 3118; CPython's
 * PyBuffer_IsContiguous reads the shape of every view that has axes. */
static int
describe_view(ArrayObject *self, const char *format, int flags, Py_buffer *view)
{
    static char empty[16];                           /* an address for no items */
    const char *base = array_storage(self)->address; /* NULL without items */
    bool has_shape = (flags & PyBUF_ND) == PyBUF_ND && self->ndim > 0;
    bool has_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES && self->ndim > 0;
    bool is_own = false;
    int64_t *strides = has_strides ? strides_for(self, flags, &is_own) : NULL;
    if (has_strides && strides == NULL) {
        return -1;
    }
    view->buf = base == NULL ? empty : (char *)base + self->byte_offset;
    view->len = (Py_ssize_t)array_nbytes(self);
    view->itemsize = (Py_ssize_t)dtype_itemsize(self->dtype);
    view->readonly = self->is_readonly;
    view->ndim = has_shape ? self->ndim : 0;
    view->format = flags & PyBUF_FORMAT ? (char *)format : NULL;
    view->shape = has_shape ? (Py_ssize_t *)array_shape(self) : NULL;
    view->strides = (Py_ssize_t *)strides;
    view->suboffsets = NULL;
    view->internal = is_own ? strides : NULL; /* freed in array_releasebuffer */
    return 0;
}

/* Keep the exception for __array__, which raises it again: NumPy asks for the buffer first,
 * discards what that raises (failed GPU work, Ctrl-C), and then calls __array__. */
static void
note_unheard(ArrayObject *self)
{
    md_state *state = state_of((PyObject *)self);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XSETREF(state->unheard, Py_XNewRef(value));
    state->unheard_of = self;
    self->has_raised_unheard = true;
    PyErr_Restore(type, value, traceback);
}

int
array_raise_unheard(ArrayObject *self)
{
    md_state *state = state_of((PyObject *)self);
    if (state->unheard == NULL || state->unheard_of != self) {
        return 0;
    }
    PyObject *value = state->unheard;
    state->unheard = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_DECREF(value);
    return -1;
}

/* Forget what an earlier request raised: the buffer is in use, so it was reported. */
static void
forget_unheard(ArrayObject *self)
{
    md_state *state = state_of((PyObject *)self);
    self->has_raised_unheard = false;
    if (state->unheard_of == self) {
        Py_CLEAR(state->unheard);
    }
}

int
array_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    ArrayObject *self = array_cast(op);
    const char *format = dtype_buffer_format(self->dtype);
    view->obj = NULL;
    if (check_request(self, format, flags) < 0) {
        return -1;
    }
    if (describe_view(self, format, flags, view) < 0) {
        return -1;
    }
    touched_bytes bytes = array_watched_bytes(self);
    if (wait_rule_for_host_view(op, "memoryview(Array)", &bytes, self->is_readonly) < 0) {
        PyMem_Free(view->internal);
        note_unheard(self);
        return -1;
    }
    readonly_publish(array_storage(self));
    if (self->has_raised_unheard) {
        forget_unheard(self);
    }
    view->obj = Py_NewRef(op);
    return 0;
}

void
array_releasebuffer(PyObject *op, Py_buffer *view)
{
    PyMem_Free(view->internal);
    if (!array_cast(op)->is_readonly) {
        storage_close_host_view(array_storage(array_cast(op)));
    }
}

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
        return errors_copy_required(
            state_of((PyObject *)self),
            "Array.__array__: %s, so a copy is needed and copy=False forbids "
            "it.",
            array_is_packed(self) ? "NumPy has one byte for each item"
                                  : "private storage has no CPU address");
    }
    *is_fresh = true;
    return array_numpy_copy("Array.__array__", self);
}

static PyObject *
converted(md_state *state, PyObject *view, PyObject *dtype, int copy, bool is_fresh)
{
    PyObject *numpy = array_numpy_module("Array.__array__");
    PyObject *wanted = NULL, *result = NULL, *is_other = NULL;
    if (numpy == NULL) {
        return NULL;
    }
    wanted = PyObject_CallMethod(numpy, "dtype", "(O)", dtype);
    PyObject *present = wanted == NULL ? NULL : PyObject_GetAttrString(view, "dtype");
    if (present != NULL) {
        is_other = PyObject_RichCompare(present, wanted, Py_NE);
        Py_DECREF(present);
    }
    if (is_other == Py_True && copy == 0) {
        (void)errors_copy_required(
            state,
            "Array.__array__: converting to %S needs a copy and copy=False "
            "forbids it.",
            wanted);
    }
    else if (is_other == Py_True) {
        result = PyObject_CallMethod(view, "astype", "(O)", wanted);
    }
    else if (is_other != NULL) {
        bool must_copy = copy == 1 && !is_fresh;
        result = must_copy ? PyObject_CallMethod(view, "copy", NULL) : Py_NewRef(view);
    }
    Py_XDECREF(is_other);
    Py_XDECREF(wanted);
    Py_DECREF(numpy);
    return result;
}

const char array_doc_array[] =
    "__array__($self, /, dtype=None, copy=None)\n--\n\n"
    "A NumPy array: of the same memory for shared and managed storage, a copy for private "
    "storage and\n"
    "for packed sub-byte items, of which NumPy gives each a byte.\n\n"
    "Waits for pending GPU work on the buffer.  Types that NumPy has not come from "
    "ml_dtypes.\n\n"
    "Raises\n------\n"
    "CopyRequiredError\n    copy=False, and the storage is private, the items are packed, or "
    "the dtype differs.\n\n"
    "Source: NumPy's array interface protocol, NEP 50 keyword `copy`.";

PyObject *
array_method_array(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.__array__", 0, 2, 0, {"dtype", "copy", NULL}};
    PyObject *values[2];
    int copy;
    bool is_fresh;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0 ||
        args_tristate("Array.__array__", "copy", values[1], &copy) < 0 ||
        array_raise_unheard(array_cast(op)) < 0) {
        return NULL;
    }
    PyObject *view = numpy_of_any_storage(array_cast(op), copy, &is_fresh);
    if (view == NULL) {
        forget_unheard(array_cast(op)); /* the caller hears it */
        return NULL;
    }
    PyObject *dtype = values[0], *result;
    if (dtype != NULL && dtype != Py_None) {
        result = converted(state_of(op), view, dtype, copy, is_fresh);
    }
    else {
        bool must_copy = copy == 1 && !is_fresh;
        result = must_copy ? PyObject_CallMethod(view, "copy", NULL) : Py_NewRef(view);
    }
    Py_DECREF(view);
    return result;
}

const char array_doc_to_numpy[] =
    "to_numpy($self, /)\n--\n\n"
    "np.asarray(self), for libraries that ask by this name, such as matplotlib.\n\n"
    "Returns\n-------\nnumpy.ndarray\n    As of __array__().\n\n"
    "Raises\n------\nImportError\n    NumPy is not installed, or ml_dtypes for a type of its "
    "own.\n"
    "TypeError\n    Neither has the type.\n"
    "MetalError\n\n"
    "Source: matplotlib, cbook._unpack_to_numpy.";

PyObject *
array_method_to_numpy(PyObject *op, PyObject *Py_UNUSED(argument))
{
    PyObject *numpy = array_numpy_module("Array.to_numpy");
    PyObject *result = numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", op);
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
        return errors_copy_required(state,
                                    "Array.host: private storage has no CPU address; use "
                                    "copy(storage='shared').host.");
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
    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
    "--\n\n"
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

PyDoc_STRVAR(host_view_reduce_doc, "__reduce__($self, /)\n--\n\n"
                                   "Pickle as the host view of an equal Array, which carries "
                                   "the items; copy.copy() is another view of\n"
                                   "the same memory, copy.deepcopy() one of a copy.");

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

static PyObject *
host_view_get_array(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef((PyObject *)array_of_host_view(op));
}

static PyGetSetDef host_view_getset[] = {
    {"array", host_view_get_array, NULL, PyDoc_STR("The Array that is viewed."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
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
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_DECREF((PyObject *)array_of_host_view(op));
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(host_view_doc,
             "The memory of an Array as a CPU array: Array.host.\n\n"
             "It reports __dlpack_device__() == (1, 0) and exports kDLCPU tensors of\n"
             "the same bytes, for consumers that take nothing else (JAX, MLX on\n"
             "Linux).");

static PyType_Slot host_view_slots[] = {
    {Py_tp_doc, (void *)host_view_doc},     {Py_tp_dealloc, host_view_dealloc},
    {Py_tp_traverse, host_view_traverse},   {Py_tp_methods, host_view_methods},
    {Py_tp_getset, host_view_getset},       {Py_tp_repr, host_view_repr},
    {Py_bf_getbuffer, host_view_getbuffer}, {0, NULL},
};

PyType_Spec host_view_spec = {
    .name = "metal_dlpack.HostView",
    .basicsize = sizeof(HostViewObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = host_view_slots,
};
