/* refusal.c: the last error that our producer raised, for users whose framework hides it.
 *
 * Owns:    one exception a thread, in the thread's own dict, without its traceback (which
 *          would keep the frames it passed, and so arrays, alive).
 */
#include "python/errors.h"

#define KEY "metal_dlpack.last_refusal"

/* Another exception of the same class and arguments: the one that is raised collects a
 * traceback. */
static PyObject *
copy_exception(PyObject *exception)
{
    PyObject *args = PyObject_GetAttrString(exception, "args");
    PyObject *copy = NULL;
    if (args != NULL && PyTuple_Check(args)) {
        copy = PyObject_Call((PyObject *)Py_TYPE(exception), args, NULL);
    }
    Py_XDECREF(args);
    return copy;
}

/* SPEC refusal-kept */
void
refusal_note(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *copy = value == NULL ? NULL : copy_exception(value);
    PyObject *dict = PyThreadState_GetDict(); /* borrowed; NULL: none can be made */
    if (copy != NULL && dict != NULL) {
        (void)PyDict_SetItemString(dict, KEY, copy);
    }
    Py_XDECREF(copy);
    PyErr_Restore(type, value, traceback); /* and not what went wrong here */
}

PyDoc_STRVAR(
    last_refusal_doc,
    "last_refusal($module, /)\n--\n\n"
    "The last error that an Array raised on this thread when it was asked for its tensor.\n\n"
    "MLX hides every refusal behind a TypeError of its own; this is the hidden error.  A\n"
    "consumer may have asked again with other keywords, and received the tensor.\n\n"
    "Returns\n-------\n"
    "Exception or None\n"
    "    The last error of __dlpack__ or the C exchange API, without its traceback.  If the\n"
    "    caller of the allocator gave no function for errors, its error is here too.  None\n"
    "    if nothing was refused yet.\n\n"
    "Threads: each has its own.");

static PyObject *
core_last_refusal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *dict = PyThreadState_GetDict();
    PyObject *key = PyUnicode_FromString(KEY);
    if (key == NULL) {
        return NULL;
    }
    PyObject *noted = dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    Py_DECREF(key);
    return noted != NULL ? Py_NewRef(noted) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyMethodDef refusal_functions[] = {
    {"last_refusal", core_last_refusal, METH_NOARGS, last_refusal_doc},
    {NULL, NULL, 0, NULL},
};
