/* shared_memory.c: see shared_memory.h. */
#include "shared_memory.h"

bool
shared_memory_check(PyObject *x)
{
    for (PyTypeObject *type = Py_TYPE(x); type != NULL; type = type->tp_base) {
        const char *name = strrchr(type->tp_name, '.');
        if (strcmp(name == NULL ? type->tp_name : name + 1, "SharedMemory") != 0) {
            continue;
        }
        PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
        bool is_it = module != NULL && PyUnicode_Check(module) &&
                     PyUnicode_CompareWithASCIIString(module, "multiprocessing.shared_memory") == 0;
        Py_XDECREF(module);
        PyErr_Clear();
        if (is_it) {
            return true;
        }
    }
    return false;
}

PyObject *
shared_memory_owner(const char *function, PyObject *x, PyObject **view)
{
    *view = NULL;
    PyObject *bytes = PyObject_GetAttrString(x, "buf");
    if (bytes == Py_None) { /* as close() leaves it */
        Py_DECREF(bytes);
        return PyErr_Format(PyExc_ValueError, "%s: the SharedMemory is closed.", function);
    }
    PyObject *fresh = bytes == NULL ? NULL : PyMemoryView_FromObject(bytes);
    Py_XDECREF(bytes);
    if (fresh == NULL) {
        return NULL;
    }
    /* A tuple drops its last item first: the view, then x.  The other way round x would find its mapping in
     * use when it closes it. */
    PyObject *owner = PyTuple_Pack(2, x, fresh);
    Py_DECREF(fresh);
    *view = owner == NULL ? NULL : fresh;
    return owner;
}
