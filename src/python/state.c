/* state.c: see state.h. */
#include "python/state.h"

md_state *
state_of_interpreter(void)
{
    PyObject *name = PyUnicode_FromString("metal_dlpack._core");
    if (name == NULL) {
        return NULL;
    }
    PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
    Py_DECREF(name);
    if (module != NULL) {
        return state_of_module(module);
    }
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ImportError,
                        "metal_dlpack is not imported in this interpreter; import it first.");
    }
    return NULL;
}
