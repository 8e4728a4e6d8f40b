/* attribute.c: see attribute.h. */
#include "python/attribute.h"

int
attribute_find(PyObject *op, PyObject *name, PyObject **out)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyObject_GetOptionalAttr(op, name, out);
#else
    *out = PyObject_GetAttr(op, name);
    if (*out != NULL) {
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
#endif
}

int
attribute_exists(PyObject *op, PyObject *name)
{
    PyObject *attribute;
    int is_there = attribute_find(op, name, &attribute);
    Py_XDECREF(attribute);
    return is_there;
}
