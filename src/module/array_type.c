/* array_type.c: the Array type: its attributes, and the table of its methods.
 *
 * Calls:   the files that array_methods.h names, for the methods.
 * Threads: the GIL is held.
 */
#include "array/array.h"

#include <structmember.h>

#include "array/array_methods.h"
#include "array/array_numpy.h"
#include "python/call_python.h"
#include "python/owners.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

/* ---- attributes ---- */

/* `closure`: 0 for the shape, 1 for the strides, which follow it. */
static PyObject *
array_get_dims(PyObject *op, void *closure)
{
    int ndim = array_cast(op)->ndim;
    return layout_tuple(array_cast(op)->dims + (intptr_t)closure * ndim, ndim);
}

MD_GETTER(array_get_nbytes, PyLong_FromLongLong(array_nbytes(array_cast(op))));
MD_GETTER(array_get_itemsize, PyLong_FromLongLong(dtype_itemsize(array_cast(op)->dtype)));
MD_GETTER(array_get_dtype, dtype_type_from_dl(state_of(op), array_cast(op)->dtype));

/* Asked by np.result_type(a), which JAX calls. */
MD_GETTER(array_get_numpy_dtype, array_numpy_dtype(array_cast(op)));
MD_GETTER(array_get_device,
          device_of_record(state_of(op), array_storage(array_cast(op))->device));
MD_GETTER(array_get_storage,
          PyUnicode_FromString(storage_mode_name(array_storage(array_cast(op))->mode)));
MD_GETTER(array_get_data, PyMemoryView_FromObject(op));
MD_GETTER(array_get_flags, call_python(CALL_ARRAY_FLAGS, op, NULL));
MD_GETTER(array_get_buffer, Py_XNewRef(array_buffer(array_cast(op))));

static PyObject *
array_get_layout_object(PyObject *op, void *Py_UNUSED(closure))
{
    strided_layout layout;
    array_get_layout(array_cast(op), &layout);
    return layout_object_new(state_of(op)->layout_type, &layout);
}

static PyGetSetDef array_getset[] = {
    {"shape", array_get_dims, NULL, PyDoc_STR("Extents, a tuple of int."), (void *)0},
    {"strides", array_get_dims, NULL, PyDoc_STR("Strides in elements, a tuple of int."),
     (void *)1},
    MD_FACT(array, nbytes, "Bytes of all items; sub-byte items are counted packed."),
    MD_FACT(array, itemsize, "Bytes of one item, rounded up for sub-byte types."),
    MD_FACT(array, dtype, "The element type, a dtype."),
    {"__numpy_dtype__", array_get_numpy_dtype, NULL,
     PyDoc_STR("dtype.numpy: NumPy reads this name to find the type of an array.\n\n"
               "Source: NumPy 2.4, release notes."),
     NULL},
    MD_FACT(array, device, "The Device that holds the items."),
    MD_FACT(array, storage, "'shared', 'managed' or 'private'."),
    MD_FACT(array, buffer, "The Buffer under the array; the same object for every view of it."),
    {"layout", array_get_layout_object, NULL,
     PyDoc_STR("Shape, strides and itemsize as a StridedLayout with offset 0."), NULL},
    MD_FACT(array, data, "memoryview(a), as NumPy's."),
    MD_FACT(array, flags,
            "NumPy's flags: c_contiguous, f_contiguous, writeable and aligned, which is True.\n"
            "They cannot be set."),
    MD_FACT(
        array, ctypes,
        "NumPy's ctypes of np.asarray(a): data, shape, strides in bytes, data_as().  Waits\n"
        "for GPU work in flight, but not for work submitted later.  CopyRequiredError for\n"
        "private storage, ImportError without NumPy."),
    MD_FACT(array, T, "A view with the axes reversed."),
    MD_FACT(array, mT,
            "A view with the last two axes swapped; ValueError below two dimensions."),
    MD_FACT(array, host,
            "The same memory as a CPU array, for consumers that look at __dlpack_device__()\n"
            "only.  CopyRequiredError for private storage."),
    {"__array_interface__", array_get_interface, NULL,
     PyDoc_STR(
         "Address, shape and type of the items, for libraries that read NumPy arrays this\n"
         "way, such as Pillow.  Waits for GPU work in flight, but not for work submitted\n"
         "later.  AttributeError for private storage, and for types that NumPy lacks."),
     NULL},
    MD_LAST_FACT,
};

static PyMemberDef array_members[] = {
    {"ndim", T_INT, offsetof(ArrayObject, ndim), READONLY,
     PyDoc_STR("Number of dimensions, 0 to 64.")},
    {"size", T_LONGLONG, offsetof(ArrayObject, nitems), READONLY,
     PyDoc_STR("Number of items.")},
    {"byte_offset", T_LONGLONG, offsetof(ArrayObject, byte_offset), READONLY,
     PyDoc_STR("Where element 0 is in the Buffer, in bytes.")},
    {"padded", T_BOOL, offsetof(ArrayObject, is_padded), READONLY,
     PyDoc_STR("True if sub-byte items have a byte each, in its lowest bits, as ml_dtypes "
               "keeps them;\n"
               "False if they are packed, and for items of whole bytes.")},
    {"readonly", T_BOOL, offsetof(ArrayObject, is_readonly), READONLY,
     PyDoc_STR("True if the items cannot be written through this array.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define CALL_ROW(name, text) {text, MD_FASTCALL(array_method_##name), array_doc_##name},
#define PLAIN_ROW(name, text) {text, array_method_##name, METH_NOARGS, array_doc_##name},
#define ONE_ROW(name, text) {text, array_method_##name, METH_O, array_doc_##name},
static PyMethodDef array_methods[] = {
    ARRAY_CALL_LIST(CALL_ROW) ARRAY_PLAIN_LIST(PLAIN_ROW) ARRAY_ONE_LIST(ONE_ROW)
        CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};
#undef CALL_ROW
#undef PLAIN_ROW
#undef ONE_ROW

const char array_doc_reduce_ex[] =
    "__reduce_ex__($self, protocol, /)\n--\n\n"
    "Pickle by value: the items in their memory order, dtype, storage and the read-only "
    "flag.\n\n"
    "Protocol 5 gives the memory itself (a PickleBuffer): out of band nothing is copied.\n"
    "Older protocols copy once.  Items that are not dense, or are in private storage, are\n"
    "copied first.\n\n"
    "Source: PEP 574.";

PyObject *
array_method_reduce_ex(PyObject *op, PyObject *protocol)
{
    return call_python(CALL_ARRAY_REDUCE, op, protocol);
}

const char array_doc_sizeof[] =
    "__sizeof__($self, /)\n--\n\n"
    "Bytes of the object, and of its items if it was made with their memory, as zeros(),\n"
    "copies and copying imports are.  A view, or an Array over memory that was there before,\n"
    "counts the object alone, as with NumPy: nbytes counts the items of any Array.";

PyObject *
array_method_sizeof(PyObject *op, PyObject *Py_UNUSED(unused))
{
    ArrayObject *self = array_cast(op);
    size_t object = sizeof *self + (size_t)Py_SIZE(op) * sizeof self->dims[0];
    return PyLong_FromSize_t(object + (self->owns_memory ? (size_t)array_nbytes(self) : 0));
}

static PyObject *
array_repr(PyObject *op)
{
    return call_python(CALL_ARRAY_TEXT, op, NULL);
}

static Py_ssize_t
array_length(PyObject *op)
{
    if (array_cast(op)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError,
                        "len(): a 0-dimensional Array has no length; its size is 1.");
        return -1;
    }
    return array_shape(array_cast(op))[0];
}

/* Iterate over views along the first axis, until array_sequence_item raises IndexError. */
static PyObject *
array_iter(PyObject *op)
{
    if (array_cast(op)->ndim == 0) {
        return PyErr_Format(PyExc_TypeError,
                            "A 0-dimensional Array cannot be iterated over; use item().");
    }
    return PySeqIter_New(op);
}

/* ---- the object's life ---- */

MD_REFUSE_NEW(array_refuse_new,
              "Array() cannot make an array; call asarray(x) for data, zeros(shape) "
              "for new memory, or Buffer.array(shape, dtype).");

static int
array_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(array_cast(op)->buffer);
    /* no tp_clear: an Array without its Buffer must not exist; owners break the cycles */
    return 0;
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
    if (self->has_raised_unheard) {
        array_forget_unheard(self); /* the next Array can have this address */
    }
    md_state *state = state_if_alive(op);
    if (self->buffer == NULL) {
        owners_release_storage(state, self->head.storage);
    }
    else {
        buffer_unhold(self->buffer);
        Py_DECREF(self->buffer);
    }
    array_recycle(state, self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    array_doc,
    "A strided view of a Metal buffer that speaks DLPack.\n\n"
    "Made by empty(), zeros(), full(), asarray(), from_dlpack() and Buffer.array(); views\n"
    "share the Buffer and cost no copy.  Several frameworks can hold the same memory: it\n"
    "lives until the last of them releases it.\n\n"
    "An Array holds numbers and does no arithmetic: operators and comparisons raise\n"
    "TypeError, unless the other operand accepts Arrays, as NumPy's arrays do.  Compute with\n"
    "np.asarray(a), a.to(torch.Tensor) or a kernel, which share its memory.  hash(a) is by\n"
    "identity.\n\n"
    "Threads: may be used from any thread; nothing orders two that write the same items.");

#define NUMBER_SLOT(name, sign) {Py_nb_##name, array_##name},
#define INPLACE_SLOT(name, sign) NUMBER_SLOT(inplace_##name, sign)
static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},
    {Py_tp_new, array_refuse_new},
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
    {Py_sq_contains, array_contains},
    {Py_tp_richcompare, array_richcompare},
    {Py_tp_hash, array_hash},
    ARRAY_BINARY_SLOTS(NUMBER_SLOT) ARRAY_INPLACE_SLOTS(INPLACE_SLOT)
        ARRAY_UNARY_SLOTS(NUMBER_SLOT){Py_nb_power, array_power},
    {Py_nb_inplace_power, array_inplace_power},
    {Py_nb_bool, array_bool},
    {Py_nb_int, array_int},
    {Py_nb_float, array_float},
    {Py_nb_index, array_index},
    {Py_bf_getbuffer, array_getbuffer},
    {Py_bf_releasebuffer, array_releasebuffer},
    {0, NULL},
};
#undef NUMBER_SLOT
#undef INPLACE_SLOT

MD_SPEC(array, "Array", offsetof(ArrayObject, dims), sizeof(int64_t), 0);
