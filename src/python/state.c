/* state.c: see state.h. */
#include "python/state.h"

md_state *
state_of_interpreter(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *module = PyDict_GetItemString(modules, "metal_dlpack._core");
    if (module == NULL) {
        PyErr_SetString(PyExc_ImportError,
                        "metal_dlpack is not imported in this interpreter; import it first.");
        return NULL;
    }
    return state_of_module(module);
}
