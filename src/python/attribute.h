/* attribute.h: attributes that may be missing.
 *
 * Owns:    nothing.
 * Threads: the GIL is held; a look-up can run any Python code.
 * Failure: a missing attribute is an answer.  What else a look-up raises goes to the caller:
 *          PyObject_HasAttr swallows it, or prints it from Python 3.13 on.  A caller that asks
 *          for more than the object's protocol promises passes it over (errors_pass_over).
 */
#ifndef MD_ATTRIBUTE_H
#define MD_ATTRIBUTE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* 1: `*out` is the attribute, owned (+1).  0: there is none; no exception is set.
 * -1: an exception.  `*out` is NULL for 0 and -1. */
static inline int
attribute_find(PyObject *op, PyObject *name, PyObject **out)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyObject_GetOptionalAttr(op, name, out);
#else /* by its earlier name */
    return _PyObject_LookupAttr(op, name, out);
#endif
}

/* 1: there is one.  0: there is none.  -1: an exception. */
static inline int
attribute_exists(PyObject *op, PyObject *name)
{
    PyObject *attribute;
    int is_there = attribute_find(op, name, &attribute);
    Py_XDECREF(attribute);
    return is_there;
}

/* The module that a type says it is from, owned (+1).  0: it says none, as a type made where no
 * __name__ is, or what it says is no text.  -1: an exception. */
static inline int
attribute_module(PyObject *type, PyObject **out)
{
    PyObject *name = PyUnicode_FromString("__module__");
    *out = NULL;
    int is_there = name == NULL ? -1 : attribute_find(type, name, out);
    Py_XDECREF(name);
    if (is_there == 1 && !PyUnicode_Check(*out)) {
        Py_CLEAR(*out);
        return 0;
    }
    return is_there;
}

/* Has its type, or a base of that, this name, and a package or a module in it for its home?  1 or 0,
 * or -1 with an exception.  Imports nothing. */
static inline int
attribute_is_of(PyObject *op, const char *package, const char *name)
{
    size_t length = strlen(package);
    for (PyTypeObject *type = Py_TYPE(op); type != NULL; type = type->tp_base) {
        const char *dot =
            strrchr(type->tp_name, '.'); /* of a class made in Python there is none */
        if (strcmp(dot == NULL ? type->tp_name : dot + 1, name) != 0) {
            continue;
        }
        PyObject *module;
        int is_there = attribute_module((PyObject *)type, &module);
        const char *text = is_there == 1 ? PyUnicode_AsUTF8(module) : NULL;
        int is_it = text != NULL && strncmp(text, package, length) == 0 &&
                    (text[length] == '\0' || text[length] == '.');
        Py_XDECREF(module);
        if (is_it || PyErr_Occurred()) {
            return is_it ? 1 : -1;
        }
    }
    return 0;
}

#endif /* MD_ATTRIBUTE_H */
