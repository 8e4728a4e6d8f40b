/* call_python.c: see call_python.h; state_of_interpreter of state.h.
 *
 * Calls:   the import system; a module is imported when it is first needed.
 * Threads: the GIL is held.
 */
#include "python/call_python.h"

static const struct {
    const char *module, *function;
} names[] = {
#define CALL_PYTHON_AS_ROW(name, module, function) [name] = {module, function},
    CALL_PYTHON_LIST(CALL_PYTHON_AS_ROW)
#undef CALL_PYTHON_AS_ROW
};

PyObject *
call_python_find(call_python_name name)
{
    PyObject *module = PyImport_ImportModule(names[name].module);
    PyObject *function =
        module == NULL ? NULL : PyObject_GetAttrString(module, names[name].function);
    Py_XDECREF(module);
    return function;
}

PyObject *
call_python(call_python_name name, PyObject *op, PyObject *argument)
{
    PyObject *function = call_python_find(name);
    PyObject *result =
        function == NULL ? NULL : PyObject_CallFunctionObjArgs(function, op, argument, NULL);
    Py_XDECREF(function);
    return result;
}

PyObject *
call_python_repr_html(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return call_python(CALL_HTML, op, NULL);
}

const char call_python_repr_html_doc[] =
    "_repr_html_($self, /)\n--\n\n"
    "HTML for notebooks: a line of facts and, where there is memory, a picture of it.\n\n"
    "Returns\n-------\nstr\n"
    "    One <div> without scripts, bounded in length; all text is escaped.\n\n"
    "Copies nothing; reads only the items that are shown, and waits for the GPU as repr()\n"
    "does.\n\n"
    "Source: IPython's rich display protocol.";

md_state *
state_of_interpreter(void)
{
    PyObject *name = PyUnicode_FromString("metal_dlpack._core");
    if (name == NULL) {
        return NULL;
    }
    PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    md_state *state = module == NULL ? NULL : state_of_module(module);
    Py_DECREF(name);
    if (state == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ImportError,
                        "metal_dlpack is not imported in this interpreter; import it first.");
    }
    return state;
}
