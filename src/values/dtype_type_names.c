/* dtype_type_names.c: what else names an element type: texts, Python's types, dtypes of other
 * packages.
 *
 * Rule:    another package's dtype is known by the names of its type and module: nothing is
 *          imported, and no tensor is asked for its text.
 * Threads: the GIL is held.
 */
#include "values/dtype_type.h"

#include <stdlib.h>
#include <string.h>

#include "python/attribute.h"

/* What a value turned out to be. */
typedef enum naming {
    NAMING_FAILED = -1, /* an exception is set */
    NAMING_NOTHING,     /* it names no element type */
    NAMING_TYPE,
    NAMING_SWAPPED, /* it names one in the other byte order */
} naming;

/* ---- texts ---- */

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
    {"half", "float16"},                     /* torch, Metal */
    {"bfloat", "bfloat16"},
    {"bf16", "bfloat16"},
    {"double", "float64"},
    {"longlong", "int64"}, /* NumPy's second types of 64 bits */
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

static naming
name_by(const char *name, DLDataType *out)
{
    return from_any_name(name, out) ? NAMING_TYPE : NAMING_NOTHING;
}

/* Read the name after the last dot: "torch.float32", "mlx.core.bfloat16". */
static naming
name_by_dotted(PyObject *text, DLDataType *out)
{
    const char *dotted = text_borrow(text);
    if (dotted == NULL) {
        return PyErr_Occurred() ? NAMING_FAILED : NAMING_NOTHING;
    }
    const char *dot = strrchr(dotted, '.');
    return name_by(dot == NULL ? dotted : dot + 1, out);
}

/* A NumPy letter, its dtype.char. */
static naming
name_by_letter(char letter, DLDataType *out)
{
    static const char letters[] = "?bBhHiIlLqQpPnNefdFD";
    static const char *const named[] = {"bool",    "int8",    "uint8",     "int16",
                                        "uint16",  "int32",   "uint32",    "int64",
                                        "uint64",  "int64",   "uint64",    "int64",
                                        "uint64",  "int64",   "uint64",    "float16",
                                        "float32", "float64", "complex64", "complex128"};
    const char *place = strchr(letters, letter);
    return place == NULL ? NAMING_NOTHING : name_by(named[place - letters], out);
}

/* NumPy's dtype.str: "<f4", "|b1"; without the byte order, and dtype.char too.
 * Source: the array interface protocol, version 3, typestr. */
static naming
name_by_typestr(const char *text, DLDataType *out)
{
    static const char kinds[] = "biufc";
    static const uint8_t codes[] = {kDLBool, kDLInt, kDLUInt, kDLFloat, kDLComplex};
    bool is_big = text[0] == '>';
    text += text[0] != '\0' && strchr("<>|=", text[0]) != NULL;
    const char *kind = text[0] == '\0' ? NULL : strchr(kinds, text[0]);
    naming found = NAMING_NOTHING;
    if (text[0] != '\0' && text[1] == '\0') {
        found = name_by_letter(text[0], out);
    }
    else if (kind != NULL && text[1] >= '1' && text[1] <= '9') {
        char *end;
        unsigned long nbytes = strtoul(text + 1, &end, 10);
        *out = (DLDataType){codes[kind - kinds], (uint8_t)(nbytes * 8), 1};
        found =
            nbytes <= 16 && *end == '\0' && dtype_is_known(*out) ? NAMING_TYPE : NAMING_NOTHING;
    }
    return found == NAMING_TYPE && is_big && dtype_itemsize(*out) > 1 ? NAMING_SWAPPED : found;
}

/* A name as it is printed: ours, with a package before it, or a NumPy code. */
static naming
name_by_text(PyObject *value, DLDataType *out)
{
    static const char *const packages[] = {"",           "torch.",     "mlx.core.",    "numpy.",
                                           "jax.numpy.", "ml_dtypes.", "metal_dlpack."};
    const char *text = text_borrow(value);
    if (text == NULL) {
        return PyErr_Occurred() ? NAMING_FAILED : NAMING_NOTHING;
    }
    for (size_t i = 0; i < sizeof packages / sizeof packages[0]; i++) {
        size_t length = strlen(packages[i]);
        if (strncmp(text, packages[i], length) == 0 && from_any_name(text + length, out)) {
            return NAMING_TYPE;
        }
    }
    return name_by_typestr(text, out);
}

/* ---- types, and dtypes of other packages ---- */

static bool
from_python_type(PyObject *value, DLDataType *out)
{
    const char *name = value == (PyObject *)&PyBool_Type      ? "bool"
                       : value == (PyObject *)&PyLong_Type    ? "int64"
                       : value == (PyObject *)&PyFloat_Type   ? "float64"
                       : value == (PyObject *)&PyComplex_Type ? "complex128"
                                                              : NULL;
    return name != NULL && dtype_from_name(name, out);
}

/* A NumPy dtype's name does not show its byte order. */
static naming
name_by_numpy_dtype(PyObject *value, DLDataType *out)
{
    PyObject *is_native = PyObject_GetAttrString(value, "isnative");
    PyObject *name = is_native == NULL ? NULL : PyObject_GetAttrString(value, "name");
    naming found = name == NULL           ? NAMING_FAILED
                   : is_native != Py_True ? NAMING_SWAPPED
                                          : name_by_dotted(name, out);
    Py_XDECREF(name);
    Py_XDECREF(is_native);
    return found;
}

/* Scalar types, numpy.float32, jax.numpy.float32 or ml_dtypes.bfloat16: classes named like
 * their dtype. */
static naming
name_by_scalar_type(PyObject *value, DLDataType *out)
{
    PyObject *module;
    int is_there = attribute_module(value, &module);
    if (is_there <= 0) {
        return is_there < 0 ? NAMING_FAILED : NAMING_NOTHING;
    }
    PyObject *name = PyObject_GetAttrString(value, "__name__");
    naming found = name == NULL ? NAMING_FAILED : NAMING_NOTHING;
    if (name != NULL && PyUnicode_Check(name) &&
        (PyUnicode_CompareWithASCIIString(module, "numpy") == 0 ||
         PyUnicode_CompareWithASCIIString(module, "jax.numpy") == 0 ||
         PyUnicode_CompareWithASCIIString(module, "ml_dtypes") == 0)) {
        found = name_by_dotted(name, out);
    }
    Py_XDECREF(name);
    Py_XDECREF(module);
    return found;
}

static naming
name_by_printed(PyObject *value, DLDataType *out)
{
    PyObject *text = PyObject_Str(value);
    naming found = text == NULL ? NAMING_FAILED : name_by_dotted(text, out);
    Py_XDECREF(text);
    return found;
}

/* Name the scalar types and dtypes of other packages. */
static naming
name_by_foreign(PyObject *value, DLDataType *out)
{
    if (PyType_Check(value)) {
        return name_by_scalar_type(value, out);
    }
    /* NumPy has a class for each dtype */
    int is_numpys = attribute_is_of(value, "numpy", "dtype");
    if (is_numpys == 1) {
        return name_by_numpy_dtype(value, out);
    }
    int is_printed = is_numpys;
    if (is_printed == 0) {
        is_printed = attribute_is_of(value, "torch", "dtype");
    }
    if (is_printed == 0) {
        is_printed = attribute_is_of(value, "mlx", "Dtype");
    }
    return is_printed == 1  ? name_by_printed(value, out)
           : is_printed < 0 ? NAMING_FAILED
                            : NAMING_NOTHING;
}

/* ---- arguments ---- */

/* Texts whose width differs from library to library, and what to write: NULL for all others. */
static const char *
widths_of(PyObject *value)
{
    static const char *const texts[][2] = {{"float", "'float32' or 'float64'"},
                                           {"int", "'int32' or 'int64'"},
                                           {"complex", "'complex64' or 'complex128'"}};
    for (size_t i = 0; PyUnicode_Check(value) && i < sizeof texts / sizeof texts[0]; i++) {
        if (PyUnicode_CompareWithASCIIString(value, texts[i][0]) == 0) {
            return texts[i][1];
        }
    }
    return NULL;
}

static int
refuse(const char *function, PyObject *value, naming found)
{
    if (found == NAMING_SWAPPED) {
        PyErr_Format(PyExc_ValueError,
                     "%s: %R is not in the machine's byte order; convert the array with "
                     "x.astype(x.dtype.newbyteorder('=')), or name the type without '>'.",
                     function, value);
    }
    else if (found == NAMING_NOTHING && widths_of(value) != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %R is not an element type, because its width differs between NumPy "
                     "and torch; give %s.",
                     function, value, widths_of(value));
    }
    else if (found == NAMING_NOTHING) {
        PyErr_Format(PyExc_TypeError,
                     "%s: %R is not an element type; give a name such as 'float32', or a dtype "
                     "of metal_dlpack, NumPy, torch or MLX.",
                     function, value);
    }
    return -1;
}

int
dtype_type_convert(md_state *state, const char *function, PyObject *value, DLDataType *out)
{
    if (Py_IS_TYPE(value, state->dtype_type)) {
        *out = dtype_of(value);
        return 0;
    }
    naming found = PyUnicode_Check(value)         ? name_by_text(value, out)
                   : from_python_type(value, out) ? NAMING_TYPE
                                                  : name_by_foreign(value, out);
    return found == NAMING_TYPE ? 0 : refuse(function, value, found);
}

int
dtype_type_is_named(DLDataType dtype, PyObject *value)
{
    DLDataType named;
    if (PyUnicode_Check(value)) {
        return PyUnicode_CompareWithASCIIString(value, dtype_name(dtype).text) == 0;
    }
    naming found =
        from_python_type(value, &named) ? NAMING_TYPE : name_by_foreign(value, &named);
    return found == NAMING_FAILED ? -1 : found == NAMING_TYPE && dtype_equal(dtype, named);
}
