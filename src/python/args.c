/* args.c: see args.h. */
#include "python/args.h"

#include <string.h>

#include "python/attribute.h"
#include "python/errors.h"

/* Our names are ASCII.  SPEC PyASCIIObject: the text of a compact ASCII str ends with a NUL. */
static bool
is_name(PyObject *name, const char *text)
{
    const char *data = PyUnicode_IS_COMPACT_ASCII(name) ? PyUnicode_DATA(name) : "";
    /* The first letter tells most of them apart, without a call. */
    return data[0] == text[0] && strcmp(data, text) == 0 &&
           (size_t)PyUnicode_GET_LENGTH(name) == strlen(text);
}

/* "b, c, d" from the name at `first` on: owned (+1), or NULL with an exception. */
static PyObject *
join_names(const args_spec *spec, int first)
{
    PyObject *text = PyUnicode_FromString(spec->names[first]);
    for (int i = first + 1; text != NULL && spec->names[i] != NULL; i++) {
        Py_SETREF(text, PyUnicode_FromFormat("%U, %s", text, spec->names[i]));
    }
    return text;
}

static int
refuse_count(const args_spec *spec, Py_ssize_t nargs)
{
    const char *plural = spec->positional == 1 ? "" : "s";
    if (spec->names[spec->positional] == NULL) {
        return errors_raise(PyExc_TypeError,
                            "%s() takes at most %d positional argument%s (%zd given).",
                            spec->function, spec->positional, plural, nargs);
    }
    PyObject *named = join_names(spec, spec->positional);
    if (named != NULL) {
        PyErr_Format(
            PyExc_TypeError,
            "%s() takes at most %d positional argument%s (%zd given); give by name, as "
            "%s=: %U.",
            spec->function, spec->positional, plural, nargs, spec->names[spec->positional],
            named);
        Py_DECREF(named);
    }
    return -1;
}

static int
check_count(const args_spec *spec, Py_ssize_t nargs)
{
    return nargs <= spec->positional ? 0 : refuse_count(spec, nargs);
}

static int
refuse_keyword(const args_spec *spec, PyObject *name)
{
    const char *first = spec->names[spec->positional_only];
    for (int i = 0; i < spec->positional_only; i++) {
        if (is_name(name, spec->names[i])) {
            return errors_raise(PyExc_TypeError,
                                "%s() takes '%U' by position: write the value without '%U='.",
                                spec->function, name, name);
        }
    }
    if (first == NULL) {
        return errors_raise(PyExc_TypeError,
                            "%s() has no keyword argument '%U'; it takes none.", spec->function,
                            name);
    }
    PyObject *known = join_names(spec, spec->positional_only);
    if (known != NULL) {
        PyErr_Format(PyExc_TypeError, "%s() has no keyword argument '%U'; it takes %U.",
                     spec->function, name, known);
        Py_DECREF(known);
    }
    return -1;
}

static int
set_keyword(const args_spec *spec, PyObject *name, PyObject *value, PyObject **values)
{
    for (int i = spec->positional_only; spec->names[i] != NULL; i++) {
        if (!is_name(name, spec->names[i])) {
            continue;
        }
        if (values[i] != NULL) {
            return errors_raise(PyExc_TypeError, "%s() got two values for '%s'.",
                                spec->function, spec->names[i]);
        }
        values[i] = value;
        return 0;
    }
    return refuse_keyword(spec, name);
}

static int
check_required(const args_spec *spec, PyObject *const *values)
{
    for (int i = 0; i < spec->required; i++) {
        if (values[i] == NULL) {
            return errors_raise(PyExc_TypeError, "%s() needs the argument '%s'.",
                                spec->function, spec->names[i]);
        }
    }
    return 0;
}

static void
set_positional(const args_spec *spec, PyObject *const *args, Py_ssize_t nargs,
               PyObject **values)
{
    for (int i = 0; spec->names[i] != NULL; i++) {
        values[i] = i < nargs ? args[i] : NULL;
    }
}

int
args_parse(const args_spec *spec, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
           PyObject **values)
{
    if (check_count(spec, nargs) < 0) {
        return -1;
    }
    set_positional(spec, args, nargs, values);
    Py_ssize_t nkeywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        if (set_keyword(spec, PyTuple_GET_ITEM(kwnames, k), args[nargs + k], values) < 0) {
            return -1;
        }
    }
    return check_required(spec, values);
}

int
args_parse_tuple(const args_spec *spec, PyObject *args, PyObject *kwargs, PyObject **values)
{
    Py_ssize_t nargs = PyTuple_GET_SIZE(args);
    if (check_count(spec, nargs) < 0) {
        return -1;
    }
    set_positional(spec, ((PyTupleObject *)args)->ob_item, nargs, values);
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &value)) {
        if (set_keyword(spec, name, value, values) < 0) {
            return -1;
        }
    }
    return check_required(spec, values);
}

int
args_refuse_type(const char *function, const char *what, const char *wanted, PyObject *value)
{
    return errors_raise(PyExc_TypeError, "%s: %s must be %s, not %.100s.", function, what,
                        wanted, Py_TYPE(value)->tp_name);
}

int
args_int64(const char *function, const char *what, PyObject *value, int64_t *out)
{
    int overflow;
    if (args_small_int(value, out)) {
        return 0;
    }
    *out = 0;
    if (!PyIndex_Check(value)) {
        return args_refuse_type(function, what, "an int", value);
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return -1;
    }
    long long result = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0) {
        PyErr_Format(PyExc_OverflowError,
                     "%s: %s (%R) does not fit in a signed 64-bit integer.", function, what,
                     number);
    }
    Py_DECREF(number);
    if (overflow != 0 || (result == -1 && PyErr_Occurred())) {
        return -1;
    }
    *out = result;
    return 0;
}

/* The address of a PyObjC object, owned (+1); `value` itself for any other.  NULL with an
 * exception. */
/* SPEC PyObjC, objc_object.__c_void_p__: a ctypes.c_void_p of the object's address. */
static PyObject *
address_of(md_state *state, PyObject *value)
{
    PyObject *method = NULL;
    int is_object =
        PyLong_Check(value) ? 0 : attribute_find(value, state->str___c_void_p__, &method);
    if (is_object <= 0) {
        return is_object < 0 ? NULL : Py_NewRef(value);
    }
    PyObject *pointer = PyObject_CallNoArgs(method);
    PyObject *address = pointer == NULL ? NULL : PyObject_GetAttrString(pointer, "value");
    Py_XDECREF(pointer);
    Py_DECREF(method);
    return address;
}

int
args_address(md_state *state, const char *function, const char *kind, PyObject *value,
             void **out)
{
    *out = NULL;
    PyObject *address = address_of(state, value);
    if (address == NULL) {
        return -1;
    }
    if (!PyLong_Check(address) || PyBool_Check(address)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: the handle must be an int (the address of an %s) or an object of "
                     "PyObjC, not %.100s.",
                     function, kind, Py_TYPE(address)->tp_name);
        Py_DECREF(address);
        return -1;
    }
    *out = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

int
args_handle(md_state *state, const char *function, const char *kind,
            bool (*is_there)(const void *handle), PyObject *value, void **out)
{
    if (args_address(state, function, kind, value, out) < 0) {
        return -1;
    }
    if (*out == NULL) {
        PyErr_Format(PyExc_ValueError, "%s: the handle is 0, which is not an %s.", function,
                     kind);
    }
    else if (!is_there(*out)) {
        PyErr_Format(PyExc_ValueError, "%s: %p is not the address of an %s.", function, *out,
                     kind);
    }
    return PyErr_Occurred() ? -1 : 0;
}

int
args_text(const char *function, const char *what, PyObject *value, const char **out)
{
    Py_ssize_t nbytes;
    *out = NULL;
    if (!PyUnicode_Check(value)) {
        return args_refuse_type(function, what, "a str or None", value);
    }
    const char *text = PyUnicode_AsUTF8AndSize(value, &nbytes);
    if (text == NULL) {
        return -1;
    }
    if ((size_t)nbytes != strlen(text)) {
        return errors_raise(PyExc_ValueError, "%s: %s (%R) holds a null character.", function,
                            what, value);
    }
    *out = text;
    return 0;
}

int
args_text_or_none(const char *function, const char *what, PyObject *value, const char **out)
{
    *out = NULL;
    return !args_is_given(value) ? 0 : args_text(function, what, value, out);
}

int
args_int64s(const char *function, const char *what, PyObject *value, int64_t *out, int capacity,
            int *count)
{
    bool is_tuple = PyTuple_CheckExact(value);
    *count = 0;
    if (!is_tuple && PyIndex_Check(value)) {
        *count = 1;
        return args_int64(function, what, value, out);
    }
    if (!is_tuple && (PyUnicode_Check(value) || !PySequence_Check(value))) {
        return args_refuse_type(function, what, "an int or a sequence of ints", value);
    }
    PyObject *items = is_tuple ? Py_NewRef(value) : PySequence_Tuple(value);
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t nitems = PyTuple_GET_SIZE(items);
    if (nitems > capacity) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %zd entries; at most %d are possible.",
                     function, what, nitems, capacity);
        goto error;
    }
    for (Py_ssize_t i = 0; i < nitems; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!args_small_int(item, &out[i]) && args_int64(function, what, item, &out[i]) < 0) {
            goto error;
        }
    }
    Py_DECREF(items);
    *count = (int)nitems;
    return 0;

error:
    Py_DECREF(items);
    return -1;
}

int
args_bool(const char *function, const char *what, PyObject *value, int *out)
{
    if (!PyBool_Check(value)) {
        return errors_raise(PyExc_TypeError, "%s: %s must be True, False or None, not %R.",
                            function, what, value);
    }
    *out = value == Py_True;
    return 0;
}
