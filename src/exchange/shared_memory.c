/* shared_memory.c: see shared_memory.h. */
#include "exchange/shared_memory.h"

static const char home[] = "multiprocessing.shared_memory";

int
shared_memory_check(PyObject *x)
{
    for (PyTypeObject *type = Py_TYPE(x); type != NULL; type = type->tp_base) {
        /* of a class made in Python, tp_name lacks the module */
        if (strcmp(type->tp_name, "SharedMemory") != 0) {
            continue;
        }
        PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
        if (module == NULL) {
            return -1;
        }
        bool is_it =
            PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, home) == 0;
        Py_DECREF(module);
        if (is_it) {
            return 1;
        }
    }
    return 0;
}

PyObject *
shared_memory_owner(const char *function, PyObject *x, const Py_buffer **view)
{
    PyObject *bytes = PyObject_GetAttrString(x, "buf");
    if (bytes == Py_None) { /* as close() leaves it */
        Py_DECREF(bytes);
        return PyErr_Format(PyExc_ValueError, "%s: the SharedMemory is closed.", function);
    }
    PyObject *fresh = bytes == NULL ? NULL : view_keep(bytes, view);
    Py_XDECREF(bytes);
    if (fresh == NULL) {
        return NULL;
    }
    /* A tuple drops its last item first: the view, then x, whose end closes the mapping and
     * fails while a view is left. */
    PyObject *owner = PyTuple_Pack(2, x, fresh);
    Py_DECREF(fresh);
    return owner;
}
