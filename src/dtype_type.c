/* dtype_type.c: the dtype type: one DLDataType as an immutable Python value.
 *
 * Owns:    one object a name, in state->dtype_cache.
 * Calls:   dtype.h for all facts; NumPy and ml_dtypes for `.numpy` only, when it is asked.
 * Threads: the GIL is held.
 */
#include "dtype_type.h"

#include "args.h"

typedef struct {
    PyObject_HEAD
    DLDataType dtype; /* known: dtype_is_known */
} DtypeObject;

static inline DLDataType
dtype_of(PyObject *op)
{
    return ((DtypeObject *)op)->dtype;
}

/* ---- making ---- */

/* Owned (+1), as the one object of this name. */
static PyObject *
add_to_cache(md_state *state, PyObject *key, DLDataType dtype)
{
    DtypeObject *self = PyObject_New(DtypeObject, state->dtype_type);
    if (self == NULL) {
        return NULL;
    }
    self->dtype = dtype;
    if (PyDict_SetItem(state->dtype_cache, key, (PyObject *)self) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *
dtype_type_from_dl(md_state *state, DLDataType dtype)
{
    char name[DTYPE_NAME_MAX];
    dtype_write_name(dtype, name);
    PyObject *key = PyUnicode_FromString(name);
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
    if (state->dtype_cache == NULL) {
        return -1;
    }
    for (int i = 0; i < dtype_table_count; i++) {
        DLDataType dtype = {dtype_table[i].code, dtype_table[i].bits, 1};
        PyObject *op = dtype_type_from_dl(state, dtype);
        if (op == NULL) {
            return -1;
        }
        /* bool would hide Python's own from `import *`: it is added too, as NumPy does. */
        int result = PyModule_AddObjectRef(module, dtype_table[i].name, op);
        Py_DECREF(op);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- from what a caller gives ---- */

static int
refuse(const char *function, PyObject *value)
{
    PyErr_Format(PyExc_TypeError,
                 "%s: %R is not an element type; give a name such as 'float32', or a dtype of "
                 "metal_dlpack, NumPy, torch or MLX.",
                 function, value);
    return -1;
}

static bool
from_python_type(PyObject *value, DLDataType *out)
{
    const char *name = value == (PyObject *)&PyBool_Type      ? "bool"
                       : value == (PyObject *)&PyLong_Type    ? "int64"
                       : value == (PyObject *)&PyFloat_Type   ? "float32"
                       : value == (PyObject *)&PyComplex_Type ? "complex64"
                                                              : NULL;
    return name != NULL && dtype_from_name(name, out);
}

/* The text as a C string, borrowed from it.  NULL without an exception: no name can equal it, for it
 * has a NUL inside or cannot be encoded.  NULL with one: no memory. */
static const char *
text_borrow(PyObject *text)
{
    Py_ssize_t length;
    const char *chars = PyUnicode_AsUTF8AndSize(text, &length);
    if (chars == NULL) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            PyErr_Clear();
        }
        return NULL;
    }
    return strlen(chars) == (size_t)length ? chars : NULL;
}

/* The part of a dotted text after the last dot, as a type's name: "torch.float32",
 * "mlx.core.bfloat16". */
static int
from_dotted(const char *function, PyObject *value, PyObject *text, DLDataType *out)
{
    const char *dotted = text_borrow(text);
    if (dotted == NULL) {
        return PyErr_Occurred() ? -1 : refuse(function, value);
    }
    const char *dot = strrchr(dotted, '.');
    const char *name = dot == NULL ? dotted : dot + 1;
    if (strcmp(name, "float4_e2m1fn_x2") == 0) { /* torch's name for two lanes */
        name = "float4_e2m1fnx2";
    }
    else if (strcmp(name, "bool_") == 0) { /* MLX's, and NumPy's scalar type */
        name = "bool";
    }
    else if (strcmp(name, "longlong") == 0) { /* NumPy's second type of 64 bits */
        name = "int64";
    }
    else if (strcmp(name, "ulonglong") == 0) {
        name = "uint64";
    }
    return dtype_from_name(name, out) ? 0 : refuse(function, value);
}

/* A NumPy dtype: refuses another byte order, which its name does not tell. */
static int
from_numpy_dtype(const char *function, PyObject *value, DLDataType *out)
{
    PyObject *is_native = PyObject_GetAttrString(value, "isnative");
    PyObject *name = is_native == NULL ? NULL : PyObject_GetAttrString(value, "name");
    int result = -1;
    if (name != NULL && is_native != Py_True) {
        PyErr_Format(PyExc_ValueError,
                     "%s: %R is not in the machine's byte order; convert it with "
                     "a.astype(a.dtype.newbyteorder('=')).",
                     function, value);
    }
    else if (name != NULL) {
        result = from_dotted(function, value, name, out);
    }
    Py_XDECREF(name);
    Py_XDECREF(is_native);
    return result;
}

/* Scalar types, numpy.float32, jax.numpy.float32 or ml_dtypes.bfloat16: classes named like their dtype. */
static int
from_scalar_type(const char *function, PyObject *value, DLDataType *out)
{
    PyObject *module = PyObject_GetAttrString(value, "__module__");
    PyObject *name = module == NULL ? NULL : PyObject_GetAttrString(value, "__name__");
    int result = -1;
    if (name != NULL && PyUnicode_Check(module) && PyUnicode_Check(name) &&
        (PyUnicode_CompareWithASCIIString(module, "numpy") == 0 ||
         PyUnicode_CompareWithASCIIString(module, "jax.numpy") == 0 ||
         PyUnicode_CompareWithASCIIString(module, "ml_dtypes") == 0)) {
        result = from_dotted(function, value, name, out);
    }
    else if (name != NULL) {
        result = refuse(function, value);
    }
    Py_XDECREF(name);
    Py_XDECREF(module);
    return result;
}

static bool
is_type_named(PyTypeObject *type, const char *package, const char *name)
{
    const char *dot = strrchr(type->tp_name, '.');
    if (strcmp(dot == NULL ? type->tp_name : dot + 1, name) != 0) {
        return false;
    }
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *text = module != NULL && PyUnicode_Check(module) ? text_borrow(module) : NULL;
    size_t length = strlen(package);
    bool is_same = text != NULL && strncmp(text, package, length) == 0 &&
                   (text[length] == '\0' || text[length] == '.');
    Py_XDECREF(module);
    PyErr_Clear(); /* a type without a module is nobody's dtype */
    return is_same;
}

/* Is this a dtype of that package?  By the names of its type and of the type's bases (NumPy has a
 * class a dtype): nothing is imported to find out, and no tensor is asked for its text. */
static bool
is_dtype_of(PyObject *value, const char *package, const char *name)
{
    for (PyTypeObject *type = Py_TYPE(value); type != NULL; type = type->tp_base) {
        if (is_type_named(type, package, name)) {
            return true;
        }
    }
    return false;
}

static int
from_text_of(const char *function, PyObject *value, DLDataType *out)
{
    PyObject *text = PyObject_Str(value);
    int result = text == NULL ? -1 : from_dotted(function, value, text, out);
    Py_XDECREF(text);
    return result;
}

int
dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out)
{
    if (Py_IS_TYPE(value, state->dtype_type)) {
        *out = dtype_of(value);
        return 0;
    }
    if (PyUnicode_Check(value)) {
        const char *name = text_borrow(value);
        if (name != NULL && dtype_from_name(name, out)) {
            return 0;
        }
        return PyErr_Occurred() ? -1 : refuse(function, value);
    }
    if (PyType_Check(value)) {
        return from_python_type(value, out) ? 0 : from_scalar_type(function, value, out);
    }
    if (is_dtype_of(value, "numpy", "dtype")) {
        return from_numpy_dtype(function, value, out);
    }
    if (is_dtype_of(value, "torch", "dtype") || is_dtype_of(value, "mlx", "Dtype")) {
        return from_text_of(function, value, out);
    }
    return refuse(function, value);
}

static PyObject *
dtype_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const args_spec spec = {"dtype", 1, 1, 1, {"x", NULL}};
    md_state *state = PyType_GetModuleState(type);
    PyObject *values[1];
    DLDataType dtype;
    if (args_parse_tuple(&spec, args, kwargs, values) < 0 ||
        dtype_type_convert(state, "dtype", values[0], &dtype) < 0) {
        return NULL;
    }
    return dtype_type_from_dl(state, dtype);
}

/* ---- attributes ---- */

static PyObject *
dtype_get_name(PyObject *op, void *Py_UNUSED(closure))
{
    char name[DTYPE_NAME_MAX];
    dtype_write_name(dtype_of(op), name);
    return PyUnicode_FromString(name);
}

static PyObject *
dtype_get_code(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(dtype_of(op).code);
}

static PyObject *
dtype_get_bits(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(dtype_of(op).bits);
}

static PyObject *
dtype_get_lanes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(dtype_of(op).lanes);
}

static PyObject *
dtype_get_alignment(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(dtype_alignment(dtype_of(op)));
}

static PyObject *
dtype_get_itemsize(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(dtype_itemsize(dtype_of(op)));
}

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
        PyErr_Format(PyExc_TypeError, "dtype.numpy: neither NumPy nor ml_dtypes has %s.", name);
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
        return PyErr_Format(PyExc_TypeError,
                            "dtype.numpy: NumPy has no type of %d lanes; give the array one axis "
                            "more.",
                            (int)dtype.lanes);
    }
    if (!entry->is_numpy) {
        return dtype_of_ml_dtypes(entry->name);
    }
    PyObject *name = PyUnicode_FromString(entry->name);
    PyObject *result = name == NULL ? NULL : numpy_dtype(name);
    Py_XDECREF(name);
    return result;
}

static PyGetSetDef dtype_getset[] = {
    {"name", dtype_get_name, NULL, PyDoc_STR("'float32', 'int4', 'float4_e2m1fnx2'."), NULL},
    {"code", dtype_get_code, NULL, PyDoc_STR("DLPack's type code, an int."), NULL},
    {"bits", dtype_get_bits, NULL, PyDoc_STR("Bits of one lane."), NULL},
    {"lanes", dtype_get_lanes, NULL, PyDoc_STR("Lanes of one item; 1 for a scalar."), NULL},
    {"itemsize", dtype_get_itemsize, NULL, PyDoc_STR("Bytes of one item, rounded up."), NULL},
    {"alignment", dtype_get_alignment, NULL,
     PyDoc_STR("Bytes that an item's place must be a multiple of: one scalar's; half of it for complex."),
     NULL},
    {"numpy", dtype_get_numpy, NULL,
     PyDoc_STR("The NumPy dtype, from ml_dtypes where NumPy has none.  TypeError: nobody has it."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *
dtype_repr(PyObject *op)
{
    char name[DTYPE_NAME_MAX];
    dtype_write_name(dtype_of(op), name);
    return PyUnicode_FromFormat("metal_dlpack.dtype('%s')", name);
}

static PyObject *
dtype_str(PyObject *op)
{
    return dtype_get_name(op, NULL);
}

static PyObject *
dtype_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(b, Py_TYPE(a))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong(dtype_equal(dtype_of(a), dtype_of(b)) == (op == Py_EQ));
}

static Py_hash_t
dtype_hash(PyObject *op)
{
    DLDataType dtype = dtype_of(op);
    return (Py_hash_t)dtype.code << 24 | (Py_hash_t)dtype.bits << 16 | dtype.lanes;
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

static void
dtype_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(dtype_doc,
             "dtype(x, /)\n--\n\n"
             "An element type of DLPack 1.3: a code, bits and lanes.\n\n"
             "Parameters\n----------\n"
             "x : dtype, str, or a dtype of NumPy, ml_dtypes, torch or MLX\n"
             "    'float32', 'bfloat16', 'int4'; with lanes 'float4_e2m1fnx2'.  Python's bool, int,\n"
             "    float and complex mean bool, int64, float32 and complex64.\n\n"
             "Raises\n------\n"
             "TypeError\n    x names no element type.\n"
             "ValueError\n    A NumPy dtype of non-native byte order.\n\n"
             "Source: dlpack.h DLDataType.");

static PyType_Slot dtype_slots[] = {
    {Py_tp_doc, (void *)dtype_doc},
    {Py_tp_new, dtype_new},
    {Py_tp_dealloc, dtype_dealloc},
    {Py_tp_getset, dtype_getset},
    {Py_tp_methods, dtype_methods},
    {Py_tp_repr, dtype_repr},
    {Py_tp_str, dtype_str},
    {Py_tp_richcompare, dtype_richcompare},
    {Py_tp_hash, dtype_hash},
    {0, NULL},
};

/* No GC: a dtype refers to nothing but its type. */
PyType_Spec dtype_spec = {
    .name = "metal_dlpack.dtype",
    .basicsize = sizeof(DtypeObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = dtype_slots,
};
