/* dtype_type.c: the dtype type: one DLDataType as an immutable Python value.
 *
 * Owns:    one object a name, in state->dtype_cache and, those of the table, state->named_dtypes.
 * Calls:   dtype.h for all facts; NumPy and ml_dtypes for `.numpy` only, when it is asked.
 * Threads: the GIL is held.
 */
#include "values/dtype_type.h"

#include <structmember.h>

#include "python/args.h"

/* ---- making ---- */

/* Make the one object of this name: owned (+1). */
static PyObject *
add_to_cache(md_state *state, PyObject *key, DLDataType dtype)
{
    DtypeObject *self = PyObject_GC_New(DtypeObject, state->dtype_type);
    if (self == NULL) {
        return NULL;
    }
    self->dtype = dtype;
    self->itemsize = dtype_itemsize(dtype);
    self->alignment = dtype_alignment(dtype);
    self->hash = PyObject_Hash(key);
    PyObject_GC_Track(self);
    if (PyDict_SetItem(state->dtype_cache, key, (PyObject *)self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *
dtype_type_from_dl(md_state *state, DLDataType dtype)
{
    const dtype_entry *entry = dtype.lanes == 1 ? dtype_find(dtype) : NULL;
    if (entry != NULL &&
        state->named_dtypes != NULL) { /* most are, and a look-up takes longer */
        return Py_NewRef(PyTuple_GET_ITEM(state->named_dtypes, entry - dtype_table));
    }
    PyObject *key = PyUnicode_FromString(dtype_name(dtype).text);
    if (key == NULL) {
        return NULL;
    }
    PyObject *cached = PyDict_GetItemWithError(state->dtype_cache, key);
    PyObject *result = cached != NULL || PyErr_Occurred() ? Py_XNewRef(cached)
                                                          : add_to_cache(state, key, dtype);
    Py_DECREF(key);
    return result;
}

int
dtype_type_add_names(PyObject *module, md_state *state)
{
    state->dtype_cache = PyDict_New();
    PyObject *named = PyTuple_New(dtype_table_count);
    if (state->dtype_cache == NULL || named == NULL) {
        Py_XDECREF(named);
        return -1;
    }
    for (int i = 0; i < dtype_table_count; i++) {
        DLDataType dtype = {dtype_table[i].code, dtype_table[i].bits, 1};
        PyObject *op = dtype_type_from_dl(state, dtype);
        if (op == NULL || PyModule_AddObjectRef(module, dtype_table[i].name, op) < 0) {
            Py_XDECREF(op);
            Py_DECREF(named);
            return -1;
        }
        PyTuple_SET_ITEM(named, i, op);
    }
    state->named_dtypes = named;
    return 0;
}

/* ---- making, by the caller ---- */

ARGS_NEW(dtype_new, "dtype", 1, 1, 1, "x")
{
    md_state *state = PyType_GetModuleState(type);
    DLDataType dtype;
    return dtype_type_convert(state, function, values[0], &dtype) < 0
               ? NULL
               : dtype_type_from_dl(state, dtype);
}

/* ---- attributes ---- */

MD_GETTER(dtype_get_name, PyUnicode_FromString(dtype_name(dtype_of(op)).text));

/* numpy.dtype(argument) */
static PyObject *
numpy_dtype(PyObject *argument)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *dtype =
        numpy == NULL ? NULL : PyObject_CallMethod(numpy, "dtype", "(O)", argument);
    Py_XDECREF(numpy);
    return dtype;
}

static PyObject *
dtype_of_ml_dtypes(const char *name)
{
    PyObject *module = PyImport_ImportModule("ml_dtypes");
    if (module == NULL) {
        if (PyErr_ExceptionMatches(PyExc_ImportError)) {
            PyErr_Format(PyExc_ImportError,
                         "dtype.numpy: NumPy has no %s of its own; install ml_dtypes.", name);
        }
        return NULL;
    }
    PyObject *scalar = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (scalar == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError, "dtype.numpy: neither NumPy nor ml_dtypes has %s.",
                         name);
        }
        return NULL;
    }
    PyObject *dtype = numpy_dtype(scalar);
    Py_DECREF(scalar);
    return dtype;
}

static PyObject *
dtype_get_numpy(PyObject *op, void *Py_UNUSED(closure))
{
    DLDataType dtype = dtype_of(op);
    const dtype_entry *entry = dtype_find(dtype);
    if (dtype.lanes != 1) {
        return PyErr_Format(
            PyExc_TypeError,
            "dtype.numpy: NumPy has no type of %d lanes; use an array with one more axis.",
            (int)dtype.lanes);
    }
    if (entry->format == NULL) {
        return dtype_of_ml_dtypes(entry->name);
    }
    PyObject *name = PyUnicode_FromString(entry->name);
    PyObject *result = name == NULL ? NULL : numpy_dtype(name);
    Py_XDECREF(name);
    return result;
}

/* What NumPy's dtype says under the name `closure`.  AttributeError where there is none, so that
 * hasattr() knows. */
static PyObject *
dtype_get_of_numpy(PyObject *op, void *closure)
{
    PyObject *numpy = dtype_get_numpy(op, NULL);
    if (numpy == NULL && (PyErr_ExceptionMatches(PyExc_TypeError) ||
                          PyErr_ExceptionMatches(PyExc_ImportError))) {
        PyObject *type, *why, *traceback;
        PyErr_Fetch(&type, &why, &traceback);
        PyErr_Format(PyExc_AttributeError, "dtype.%s is what NumPy says; %S", (char *)closure,
                     why);
        Py_XDECREF(type);
        Py_XDECREF(why);
        Py_XDECREF(traceback);
    }
    PyObject *result = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, closure);
    Py_XDECREF(numpy);
    return result;
}
#define OF_NUMPY(name, doc) {#name, dtype_get_of_numpy, NULL, PyDoc_STR(doc), #name}

static PyGetSetDef dtype_getset[] = {
    MD_FACT(dtype, name, "'float32', 'int4', 'float4_e2m1fnx2'."),
    MD_FACT(
        dtype, numpy,
        "The NumPy dtype, from ml_dtypes where NumPy has none.  TypeError if neither has it."),
    {"dtype", dtype_get_numpy, NULL,
     PyDoc_STR("The same as `numpy`: np.dtype(x) and NumPy's dtype= arguments read this name."),
     NULL},
    OF_NUMPY(kind, "numpy.kind: 'b', 'i', 'u', 'f', 'c', or 'V' for most types of ml_dtypes."),
    OF_NUMPY(type, "numpy.type: the class of one item, such as numpy.float32."),
    OF_NUMPY(str, "numpy.str: byte order, kind and bytes, such as '<f4'."),
    OF_NUMPY(char, "numpy.char: NumPy's letter for it."),
    OF_NUMPY(num, "numpy.num: NumPy's number for it."),
    OF_NUMPY(byteorder, "numpy.byteorder: '=', or '|' for items of one byte."),
    OF_NUMPY(isnative, "numpy.isnative: True."),
    OF_NUMPY(hasobject, "numpy.hasobject: False."),
    OF_NUMPY(names, "numpy.names: None, as an item has no fields."),
    OF_NUMPY(fields, "numpy.fields: None."),
    OF_NUMPY(subdtype, "numpy.subdtype: None."),
    OF_NUMPY(descr, "numpy.descr: what numpy.lib.format writes in a header."),
    OF_NUMPY(newbyteorder, "numpy.newbyteorder: makes the NumPy dtype of another byte order."),
    MD_LAST_FACT,
};

static PyMemberDef dtype_members[] = {
    {"code", T_UBYTE, offsetof(DtypeObject, dtype.code), READONLY,
     PyDoc_STR("DLPack's type code, an int.")},
    {"bits", T_UBYTE, offsetof(DtypeObject, dtype.bits), READONLY,
     PyDoc_STR("Bits of one lane.")},
    {"lanes", T_USHORT, offsetof(DtypeObject, dtype.lanes), READONLY,
     PyDoc_STR("Lanes of one item; 1 for a scalar.")},
    {"itemsize", T_LONGLONG, offsetof(DtypeObject, itemsize), READONLY,
     PyDoc_STR("Bytes of one item, rounded up.")},
    {"alignment", T_LONGLONG, offsetof(DtypeObject, alignment), READONLY,
     PyDoc_STR("The alignment: an item's address is a multiple of it.  One scalar's bytes; "
               "half of them for complex.")},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
dtype_repr(PyObject *op)
{
    return PyUnicode_FromFormat("metal_dlpack.dtype('%s')", dtype_name(dtype_of(op)).text);
}

static PyObject *
dtype_str(PyObject *op)
{
    return dtype_get_name(op, NULL);
}

static PyObject *
dtype_richcompare(PyObject *a, PyObject *b, int op)
{
    bool is_ours = Py_IS_TYPE(b, Py_TYPE(a));
    if (op != Py_EQ && op != Py_NE) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    int is_equal =
        is_ours ? dtype_equal(dtype_of(a), dtype_of(b)) : dtype_type_is_named(dtype_of(a), b);
    if (is_equal == 0 && !is_ours) {
        Py_RETURN_NOTIMPLEMENTED; /* the other may know better; if not, they are unequal */
    }
    return is_equal < 0 ? NULL : PyBool_FromLong(is_equal == (op == Py_EQ));
}

static Py_hash_t
dtype_hash(PyObject *op)
{
    return ((DtypeObject *)op)->hash;
}

static PyObject *
dtype_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("O(N)", Py_TYPE(op), dtype_get_name(op, NULL));
}

static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS,
     PyDoc_STR("__reduce__($self, /)\n--\n\nPickle by name.")},
    {NULL, NULL, 0, NULL},
};

/* The module holds dtypes, and their type holds the module: only the collector ends that. */
PyDoc_STRVAR(
    dtype_doc,
    "dtype(x, /)\n--\n\n"
    "An element type of DLPack 1.3: a code, bits and lanes.\n\n"
    "Parameters\n----------\n"
    "x : dtype, str, a dtype of NumPy, ml_dtypes, torch, MLX or TVM, or a scalar type\n"
    "    'float32', 'bfloat16', 'int4'; with lanes 'float4_e2m1fnx2'; as other packages\n"
    "    print it, 'torch.float32', 'mlx.core.float32'; NumPy's codes, '<f4', 'f4', 'f'.\n"
    "    Scalar types are those of NumPy, ml_dtypes and JAX; Python's bool, int, float and\n"
    "    complex mean bool, int64, float64 and complex128, as to NumPy and torch.  The texts\n"
    "    'int', 'float' and 'complex' are refused, because NumPy and torch disagree on them.\n"
    "    No package is imported to know its dtypes.\n\n"
    "Raises\n------\n"
    "TypeError\n    x names no element type.\n"
    "ValueError\n    The byte order is not the machine's.\n\n"
    "A dtype equals its name and has the same hash: float32 == 'float32', and either finds\n"
    "the other in a dict.  It equals what other packages call the same type, torch.float32,\n"
    "np.dtype('f4'), np.float32, mlx.core.float32, and Python's bool, int, float and complex\n"
    "as above.  Their hashes differ: convert the keys of a dict with dtype(x).  The "
    "comparison\n"
    "mlx.core.float32 == x is MLX's, and is False.  Other texts ('f4') are not equal.\n\n"
    "What NumPy's dtype says under kind, type, str and more names is what `numpy` says; where\n"
    "there is no such dtype these raise AttributeError.\n\n"
    "Source: dlpack.h DLDataType.");

static PyType_Slot dtype_slots[] = {
    {Py_tp_doc, (void *)dtype_doc},
    {Py_tp_new, dtype_new},
    {Py_tp_traverse, state_visit_type},
    {Py_tp_getset, dtype_getset},
    {Py_tp_members, dtype_members},
    {Py_tp_methods, dtype_methods},
    {Py_tp_repr, dtype_repr},
    {Py_tp_str, dtype_str},
    {Py_tp_richcompare, dtype_richcompare},
    {Py_tp_hash, dtype_hash},
    {0, NULL},
};

MD_SPEC(dtype, "dtype", sizeof(DtypeObject), 0, 0);
