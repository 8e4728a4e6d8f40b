/* array.c: the Array type: a Buffer, a byte offset, a layout and an element type.
 *
 * Owns:    one reference to its Buffer, which it holds open; one to the storage until there is a Buffer.
 * Calls:   the files that array_methods.h names, for the methods.
 * Threads: the GIL is held.
 */
#include "array/array.h"

#include <structmember.h>

#include "python/args.h"
#include "array/array_methods.h"
#include "streams/device.h"
#include "values/dtype_type.h"
#include "python/errors.h"
#include "values/layout_type.h"
#include "python/owners.h"
#include "python/storage_mode.h"

/* ---- making ---- */

/* All but the Buffer.  `first_bit` counts from `byte_offset`, the layout's offset from there. */
static ArrayObject *
make_array(md_state *state, metal_storage *storage, int64_t byte_offset, int64_t first_bit,
           const strided_layout *layout, DLDataType dtype, bool is_padded)
{
    ArrayObject *self = PyObject_GC_NewVar(ArrayObject, state->array_type, 2 * layout->ndim);
    if (self == NULL) {
        return NULL;
    }
    size_t dims_nbytes = (size_t)layout->ndim * sizeof(int64_t);
    int64_t bits = first_bit + layout->offset * (bits_per_item(dtype, is_padded) % 8);
    int64_t whole = layout->offset * (bits_per_item(dtype, is_padded) / 8);
    self->storage = storage;
    self->buffer = NULL;
    self->byte_offset = byte_offset + whole + (bits >> 3);
    self->first_bit = (uint8_t)(bits & 7);
    self->nitems = layout_volume(layout);
    self->weakrefs = NULL;
    self->dtype = dtype;
    self->ndim = layout->ndim;
    self->is_padded = is_padded;
    self->is_readonly = storage->is_readonly;
    memcpy(self->dims, layout->shape, dims_nbytes);
    memcpy(self->dims + layout->ndim, layout->strides, dims_nbytes);
    return self;
}

/* The last step: nothing can fail after it. */
static PyObject *
hold_buffer(ArrayObject *self, PyObject *buffer)
{
    self->buffer = buffer_cast(Py_NewRef(buffer));
    buffer_hold(self->buffer);
    if (PyObject_GC_IsTracked(buffer)) { /* an Array refers to nothing else */
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

PyObject *
array_new_padded(md_state *state, PyObject *buffer, int64_t byte_offset,
                 const strided_layout *layout, DLDataType dtype, bool is_readonly, bool is_padded)
{
    bool has_padding = is_padded && !dtype_is_whole_bytes(dtype);
    ArrayObject *self = make_array(state, buffer_cast(buffer)->storage, byte_offset, 0, layout, dtype,
                                   has_padding);
    if (self == NULL) {
        return NULL;
    }
    self->is_readonly |= is_readonly;
    return hold_buffer(self, buffer);
}

PyObject *
array_over_storage(md_state *state, metal_storage *storage, int64_t byte_offset,
                   const strided_layout *layout, DLDataType dtype, bool is_readonly, bool is_padded)
{
    if (owners_object(storage) != NULL) { /* the garbage collector finds it through the Buffer */
        PyObject *buffer = buffer_from_storage(state, storage);
        PyObject *op = buffer == NULL ? NULL
                                      : array_new_padded(state, buffer, byte_offset, layout, dtype,
                                                         is_readonly, is_padded);
        Py_XDECREF(buffer);
        return op;
    }
    bool has_padding = is_padded && !dtype_is_whole_bytes(dtype);
    ArrayObject *self = make_array(state, storage, byte_offset, 0, layout, dtype, has_padding);
    if (self == NULL) {
        storage_release(storage);
        return NULL;
    }
    self->is_readonly |= is_readonly;
    return (PyObject *)self;
}

PyObject *
array_buffer(ArrayObject *self)
{
    BufferObject *known = __atomic_load_n(&self->buffer, __ATOMIC_ACQUIRE);
    if (known != NULL) {
        return (PyObject *)known;
    }
    storage_retain(self->storage);
    PyObject *made = buffer_from_storage(state_of((PyObject *)self), self->storage);
    if (made == NULL) {
        return NULL;
    }
    buffer_hold(buffer_cast(made));
    /* Making it can run other threads, and the garbage collector anybody's code. */
    if (!__atomic_compare_exchange_n(&self->buffer, &known, buffer_cast(made), false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        buffer_unhold(buffer_cast(made));
        Py_DECREF(made);
        return (PyObject *)known;
    }
    storage_release(self->storage); /* the Buffer's reference is there now */
    return made;
}

PyObject *
array_new(md_state *state, PyObject *buffer, int64_t byte_offset, const strided_layout *layout,
          DLDataType dtype, bool is_readonly)
{
    return array_new_padded(state, buffer, byte_offset, layout, dtype, is_readonly, false);
}

PyObject *
array_view_bits(ArrayObject *self, const strided_layout *layout)
{
    PyObject *buffer = array_buffer(self);
    ArrayObject *view = buffer == NULL ? NULL
                                       : make_array(state_of((PyObject *)self), self->storage,
                                                    self->byte_offset, self->first_bit, layout,
                                                    self->dtype, self->is_padded);
    if (view == NULL) {
        return NULL;
    }
    view->is_readonly = self->is_readonly;
    return hold_buffer(view, buffer);
}

PyObject *
array_view(ArrayObject *self, const strided_layout *layout)
{
    PyObject *op = array_view_bits(self, layout);
    if (op == NULL || array_cast(op)->first_bit == 0) {
        return op;
    }
    ArrayObject *view = array_cast(op);
    if (view->nitems == 0) { /* it begins nowhere */
        view->first_bit = 0;
        return op;
    }
    char name[DTYPE_NAME_MAX];
    dtype_write_name(self->dtype, name);
    (void)errors_copy_required(state_of(op),
                               "Array: the first %s item of the view begins at bit %d of byte %lld "
                               "of the buffer, and a view begins on a byte; begin it on another "
                               "item, or view a.copy(padded=True), where each item has a byte.",
                               name, (int)view->first_bit, (long long)view->byte_offset);
    Py_DECREF(op);
    return NULL;
}

/* SPEC export-alignment */
PyObject *
array_allocate_padded(md_state *state, const char *function, const device_record *device,
                      bridge_storage mode, int ndim, const int64_t *shape, DLDataType dtype,
                      char order, bool is_padded)
{
    strided_layout layout;
    layout_fault fault;
    int64_t nbytes;
    if (!layout_set_dense(&layout, ndim, shape, dtype_itemsize(dtype), order, &fault)) {
        return errors_from_layout(state, function, &fault);
    }
    nbytes = layout_volume(&layout) * layout.itemsize; /* layout_set_dense has counted it */
    if (!is_padded && !dtype_packed_nbytes(dtype, layout_volume(&layout), &nbytes)) {
        return PyErr_Format(PyExc_ValueError, "%s: the array's bytes pass what 64 bits can count.",
                            function);
    }
    metal_storage *storage = buffer_allocate_storage(state, function, device, (size_t)nbytes, mode);
    return storage == NULL ? NULL
                           : array_over_storage(state, storage, 0, &layout, dtype, false, is_padded);
}

PyObject *
array_allocate(md_state *state, const char *function, const device_record *device,
               bridge_storage mode, int ndim, const int64_t *shape, DLDataType dtype, char order)
{
    return array_allocate_padded(state, function, device, mode, ndim, shape, dtype, order, false);
}

/* ---- what others ask ---- */

int64_t
array_nbytes(const ArrayObject *self)
{
    int64_t nbytes;
    if (self->is_padded) {
        return self->nitems * dtype_itemsize(self->dtype);
    }
    (void)dtype_packed_nbytes(self->dtype, self->nitems, &nbytes); /* fitted when it was made */
    return nbytes;
}

void
array_get_layout(const ArrayObject *self, strided_layout *out)
{
    size_t dims_nbytes = (size_t)self->ndim * sizeof(int64_t);
    out->ndim = self->ndim;
    out->itemsize = dtype_itemsize(self->dtype);
    out->offset = 0;
    memcpy(out->shape, array_shape(self), dims_nbytes);
    memcpy(out->strides, array_strides(self), dims_nbytes);
}

/* ---- attributes ---- */

static PyObject *
array_get_shape(PyObject *op, void *Py_UNUSED(closure))
{
    return layout_tuple(array_shape(array_cast(op)), array_cast(op)->ndim);
}

static PyObject *
array_get_strides(PyObject *op, void *Py_UNUSED(closure))
{
    return layout_tuple(array_strides(array_cast(op)), array_cast(op)->ndim);
}

static PyObject *
array_get_ndim(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(array_cast(op)->ndim);
}

static PyObject *
array_get_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(array_cast(op)->nitems);
}

static PyObject *
array_get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(array_nbytes(array_cast(op)));
}

static PyObject *
array_get_itemsize(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(dtype_itemsize(array_cast(op)->dtype));
}

static PyObject *
array_get_dtype(PyObject *op, void *Py_UNUSED(closure))
{
    return dtype_type_from_dl(state_of(op), array_cast(op)->dtype);
}

static PyObject *
array_get_device(PyObject *op, void *Py_UNUSED(closure))
{
    return device_of_record(state_of(op), array_storage(array_cast(op))->device);
}

static PyObject *
array_get_storage(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(storage_mode_name(array_storage(array_cast(op))->mode));
}

static PyObject *
array_get_buffer(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_XNewRef(array_buffer(array_cast(op)));
}

static PyObject *
array_get_byte_offset(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(array_cast(op)->byte_offset);
}

static PyObject *
array_get_layout_object(PyObject *op, void *Py_UNUSED(closure))
{
    strided_layout layout;
    array_get_layout(array_cast(op), &layout);
    return layout_type_new(state_of(op), &layout);
}

static PyObject *
array_get_readonly(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(array_cast(op)->is_readonly);
}

static PyObject *
array_get_padded(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(array_cast(op)->is_padded);
}

static PyGetSetDef array_getset[] = {
    {"shape", array_get_shape, NULL, PyDoc_STR("Extents, a tuple of int."), NULL},
    {"strides", array_get_strides, NULL, PyDoc_STR("Strides in elements, a tuple of int."), NULL},
    {"ndim", array_get_ndim, NULL, PyDoc_STR("Number of dimensions, 0 to 64."), NULL},
    {"size", array_get_size, NULL, PyDoc_STR("Number of items."), NULL},
    {"nbytes", array_get_nbytes, NULL,
     PyDoc_STR("Bytes of all items; sub-byte items are counted packed."), NULL},
    {"itemsize", array_get_itemsize, NULL,
     PyDoc_STR("Bytes of one item, rounded up for sub-byte types."), NULL},
    {"dtype", array_get_dtype, NULL, PyDoc_STR("The element type, a dtype."), NULL},
    {"device", array_get_device, NULL, PyDoc_STR("The Device that holds the items."), NULL},
    {"storage", array_get_storage, NULL, PyDoc_STR("'shared', 'managed' or 'private'."), NULL},
    {"buffer", array_get_buffer, NULL,
     PyDoc_STR("The Buffer under the array; the same object for every view of it."), NULL},
    {"byte_offset", array_get_byte_offset, NULL,
     PyDoc_STR("Where element 0 is in the Buffer, in bytes."), NULL},
    {"layout", array_get_layout_object, NULL,
     PyDoc_STR("Shape, strides and itemsize as a StridedLayout with offset 0."), NULL},
    {"padded", array_get_padded, NULL,
     PyDoc_STR("True if sub-byte items have a byte each, in its lowest bits, as ml_dtypes keeps them;\n"
               "False if they are packed, and for items of whole bytes."),
     NULL},
    {"readonly", array_get_readonly, NULL,
     PyDoc_STR("True if the items cannot be written through this array."), NULL},
    {"T", array_get_T, NULL, PyDoc_STR("A view with the axes reversed."), NULL},
    {"mT", array_get_mT, NULL,
     PyDoc_STR("A view with the last two axes swapped; ValueError below two dimensions."), NULL},
    {"host", array_get_host, NULL,
     PyDoc_STR("The same memory as a CPU array, for consumers that look at __dlpack_device__()\n"
               "only.  CopyRequiredError for private storage."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define CALL_ROW(name, text) {text, MD_FASTCALL(array_method_##name), array_doc_##name},
#define PLAIN_ROW(name, text) {text, array_method_##name, METH_NOARGS, array_doc_##name},
#define ONE_ROW(name, text) {text, array_method_##name, METH_O, array_doc_##name},
static PyMethodDef array_methods[] = {
    ARRAY_CALL_LIST(CALL_ROW)
    ARRAY_PLAIN_LIST(PLAIN_ROW)
    ARRAY_ONE_LIST(ONE_ROW)
    {NULL, NULL, 0, NULL},
};
#undef CALL_ROW
#undef PLAIN_ROW
#undef ONE_ROW

/* The words are Python's: metal_dlpack/text.py. */
/* What `function` of the Python module makes of the array: owned (+1).  `argument` may be NULL. */
static PyObject *
call_python(const char *module_name, const char *function, PyObject *op, PyObject *argument)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *name = PyUnicode_FromString(function);
    PyObject *result = NULL;
    if (module != NULL && name != NULL) {
        result = PyObject_CallMethodObjArgs(module, name, op, argument, NULL);
    }
    Py_XDECREF(name);
    Py_XDECREF(module);
    return result;
}

const char array_doc_reduce_ex[] =
    "__reduce_ex__($self, protocol, /)\n--\n\n"
    "Pickle by value: the items in their memory order, dtype, storage and the read-only flag.\n\n"
    "Protocol 5 gives the memory itself (a PickleBuffer): out of band nothing is copied.  Older\n"
    "protocols copy once.  Items that do not lie densely, or in private storage, are copied first.\n\n"
    "Source: PEP 574.";

PyObject *
array_method_reduce_ex(PyObject *op, PyObject *protocol)
{
    return call_python("metal_dlpack.pickling", "reduce_array", op, protocol);
}

static PyObject *
array_repr(PyObject *op)
{
    return call_python("metal_dlpack.text", "describe_array", op, NULL);
}

PyObject *
array_method_repr_html(PyObject *op, PyObject *Py_UNUSED(argument))
{
    return call_python("metal_dlpack.notebook", "array_html", op, NULL);
}

const char array_doc_repr_html[] =
    "_repr_html_($self, /)\n--\n\n"
    "HTML for notebooks: a table of facts and, in <pre>, the items as repr() prints them.\n\n"
    "Returns\n-------\nstr\n    A few kB at most, whatever the size; all text is escaped.\n\n"
    "Reads the items that are shown, after waiting for GPU work that writes them.";

static Py_ssize_t
array_length(PyObject *op)
{
    if (array_cast(op)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of a 0-dimensional Array.");
        return -1;
    }
    return array_shape(array_cast(op))[0];
}

/* Views of the first axis, one after another: IndexError of array_sequence_item ends it. */
static PyObject *
array_iter(PyObject *op)
{
    if (array_cast(op)->ndim == 0) {
        return PyErr_Format(PyExc_TypeError, "A 0-dimensional Array cannot be iterated over; use item().");
    }
    return PySeqIter_New(op);
}

/* ---- the object's life ---- */

static int
array_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(array_cast(op)->buffer);
    return 0; /* no tp_clear: an Array without its Buffer must not exist; owners break the cycles */
}

static void
array_dealloc(PyObject *op)
{
    ArrayObject *self = array_cast(op);
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->buffer == NULL) {
        storage_release(self->storage);
    }
    else {
        buffer_unhold(self->buffer);
        Py_DECREF(self->buffer);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(array_doc,
             "A strided view of a Metal buffer that speaks DLPack.\n\n"
             "Made by empty(), zeros(), full(), asarray(), from_dlpack() and Buffer.array(); views\n"
             "share the Buffer and cost no copy.  Several frameworks can hold the same memory: it\n"
             "lives until the last of them lets go.\n\n"
             "`==` compares identity only; convert with np.asarray(a) to compare items.\n\n"
             "Threads: may be used from any thread; nothing orders two that write the same items.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_getset},
    {Py_tp_members, array_members},
    {Py_tp_repr, array_repr},
    {Py_mp_length, array_length},
    {Py_mp_subscript, array_subscript},
    {Py_mp_ass_subscript, array_assign_subscript},
    {Py_sq_length, array_length},
    {Py_sq_item, array_sequence_item},
    {Py_tp_iter, array_iter},
    {Py_nb_bool, array_bool},
    {Py_nb_int, array_int},
    {Py_nb_float, array_float},
    {Py_nb_index, array_index},
    {Py_bf_getbuffer, array_getbuffer},
    {Py_bf_releasebuffer, array_releasebuffer},
    {0, NULL},
};

PyType_Spec array_spec = {
    .name = "metal_dlpack.Array",
    .basicsize = offsetof(ArrayObject, dims),
    .itemsize = sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
