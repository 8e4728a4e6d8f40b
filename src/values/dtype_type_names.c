/* dtype_type_names.c: what else names an element type: texts, Python's types, dtypes of other
 * packages.
 *
 * Rule:    another package's dtype is known by the names of its type and module: nothing is
 *          imported, and no tensor is asked for its text.
 * Threads: the GIL is held.
 */
#include "values/dtype_type_names.h"

#include <stdlib.h>

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

/* The text as a C string, borrowed from it.  NULL without an exception: no name can equal it,
 * for it has a NUL inside or cannot be encoded.  NULL with one: no memory. */
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

/* Names that others have for our types. */
static const struct {
    const char *theirs, *ours;
} other_names[] = {
    {"float4_e2m1fn_x2", "float4_e2m1fnx2"}, /* torch: two lanes */
    {"bool_", "bool"},                       /* MLX, JAX */
    {"longlong", "int64"},                   /* NumPy's second types of 64 bits */
    {"ulonglong", "uint64"},
};

static bool
from_any_name(const char *name, DLDataType *out)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        if (strcmp(name, other_names[i].theirs) == 0) {
            name = other_names[i].ours;
        }
    }
    return dtype_from_name(name, out);
}

/* Read the name after the last dot: "torch.float32", "mlx.core.bfloat16". */
static int
from_dotted(const char *function, PyObject *value, PyObject *text, DLDataType *out)
{
    const char *dotted = text_borrow(text);
    if (dotted == NULL) {
        return PyErr_Occurred() ? -1 : refuse(function, value);
    }
    const char *dot = strrchr(dotted, '.');
    return from_any_name(dot == NULL ? dotted : dot + 1, out) ? 0 : refuse(function, value);
}

static int
refuse_byte_order(const char *function, PyObject *value)
{
    PyErr_Format(PyExc_ValueError,
                 "%s: %R is not in the machine's byte order; convert it with "
                 "a.astype(a.dtype.newbyteorder('=')).",
                 function, value);
    return -1;
}

/* NumPy's dtype.str: "<f4", "|b1".  Source: the array interface protocol, version
 * 3, typestr. */
static int
from_typestr(const char *function, PyObject *value, const char *text, DLDataType *out)
{
    static const char kinds[] = "biufc";
    static const uint8_t codes[] = {kDLBool, kDLInt, kDLUInt, kDLFloat, kDLComplex};
    const char *kind = text[1] == '\0' ? NULL : strchr(kinds, text[1]);
    char *end;
    unsigned long nbytes = kind == NULL ? 0 : strtoul(text + 2, &end, 10);
    if (nbytes == 0 || nbytes > 16 || *end != '\0' || text[2] < '1' || text[2] > '9') {
        return refuse(function, value);
    }
    *out = (DLDataType){codes[kind - kinds], (uint8_t)(nbytes * 8), 1};
    if (!dtype_is_known(*out)) {
        return refuse(function, value);
    }
    return text[0] == '>' && nbytes > 1 ? refuse_byte_order(function, value) : 0;
}

/* A name as it is printed: ours, with a package before it, or a typestr. */
static int
from_text(const char *function, PyObject *value, DLDataType *out)
{
    static const char *const packages[] = {"",           "torch.",     "mlx.core.",    "numpy.",
                                           "jax.numpy.", "ml_dtypes.", "metal_dlpack."};
    const char *text = text_borrow(value);
    if (text == NULL) {
        return PyErr_Occurred() ? -1 : refuse(function, value);
    }
    if (text[0] != '\0' && strchr("<>|=", text[0]) != NULL) {
        return from_typestr(function, value, text, out);
    }
    for (size_t i = 0; i < sizeof packages / sizeof packages[0]; i++) {
        size_t length = strlen(packages[i]);
        if (strncmp(text, packages[i], length) == 0 && from_any_name(text + length, out)) {
            return 0;
        }
    }
    return refuse(function, value);
}

/* Refuse a NumPy dtype of foreign byte order, which its name does not show. */
static int
from_numpy_dtype(const char *function, PyObject *value, DLDataType *out)
{
    PyObject *is_native = PyObject_GetAttrString(value, "isnative");
    PyObject *name = is_native == NULL ? NULL : PyObject_GetAttrString(value, "name");
    int result = -1;
    if (name != NULL && is_native != Py_True) {
        (void)refuse_byte_order(function, value);
    }
    else if (name != NULL) {
        result = from_dotted(function, value, name, out);
    }
    Py_XDECREF(name);
    Py_XDECREF(is_native);
    return result;
}

/* Scalar types, numpy.float32, jax.numpy.float32 or ml_dtypes.bfloat16: classes named like
 * their dtype. */
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
    PyErr_Clear(); /* a type without a module is no package's dtype */
    return is_same;
}

/* Is this a dtype of that package?  Compare the names of its type and of the type's bases, as
 * NumPy has a class for each dtype.  Nothing is imported, and no tensor is asked for its text. */
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
        return from_text(function, value, out);
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
