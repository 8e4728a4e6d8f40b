/* call_python.c: see call_python.h.
 *
 * Calls:   the import system; a module is imported when it is first needed.
 * Threads: the GIL is held.
 */
#include "python/call_python.h"

PyObject *
call_python(const char *module_name, const char *function, PyObject *op, PyObject *argument)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *name = PyUnicode_FromString(function);
    PyObject *result = NULL;
    if (module != NULL && name != NULL) {
        result = PyObject_CallMethodObjArgs(module, name, op, argument, NULL);
    }
    Py_XDECREF(name);
    Py_XDECREF(module);
    return result;
}

PyObject *
call_python_repr_html(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return call_python("metal_dlpack.notebook", "html_of", op, NULL);
}

const char call_python_repr_html_doc[] =
    "_repr_html_($self, /)\n--\n\n"
    "HTML for notebooks: a line of facts and, where there is memory, a picture of it.\n\n"
    "Returns\n-------\nstr\n"
    "    One <div> without scripts, bounded in length; all text is escaped.\n\n"
    "Copies nothing; reads only the items that are shown, and waits for the GPU as repr() "
    "does.\n\n"
    "Source: IPython's rich display protocol.";
