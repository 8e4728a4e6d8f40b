/* torch_export.c: see torch_export.h. */
#include "exchange/torch_export.h"

#include "python/call_python.h"

#include <string.h>

/* Call a function of metal_dlpack.torch_memory, with `argument` if there is one.  True ends
 * the asking. */
static int
ask(md_state *state, const char *function, PyObject *argument)
{
    PyObject *answer = call_python("metal_dlpack.torch_memory", function, argument, NULL);
    if (answer == NULL) {
        return -1;
    }
    state->torch_is_checked = answer == Py_True;
    Py_DECREF(answer);
    return 0;
}

/* SPEC export-torch */
int
torch_check_type(md_state *state, PyTypeObject *type)
{
    return state->torch_is_checked ? 0 : ask(state, "check_type", (PyObject *)type);
}

/* Importing torch adds some thousand modules: where their number is the same, it was not. */
static bool
is_torch_imported(md_state *state)
{
    PyObject *modules = PyImport_GetModuleDict();
    Py_ssize_t count = PyDict_GET_SIZE(modules);
    if (state->modules_without_torch >= 0 && state->modules_without_torch != count) {
        bool is_found = PyDict_GetItem(modules, state->str_torch) != NULL;
        state->modules_without_torch = is_found ? -1 : count;
    }
    return state->modules_without_torch < 0;
}

/* Does the Python function that called us stand in a module of torch's?  That of
 * torch.from_dlpack is torch.utils.dlpack. */
static bool
is_asked_by_torch(const md_state *state)
{
    static const char package[] = "torch.";
    PyObject *globals = PyEval_GetGlobals();
    PyObject *name = globals == NULL ? NULL : PyDict_GetItem(globals, state->str___name__);
    if (name == NULL || !PyUnicode_Check(name) || !PyUnicode_IS_COMPACT_ASCII(name)) {
        return false;
    }
    const char *text = (const char *)PyUnicode_1BYTE_DATA(name);
    return strncmp(text, package, sizeof package - 1) == 0;
}

/* SPEC export-torch */
int
torch_check_asker(md_state *state)
{
    if (state->torch_is_checked || !is_torch_imported(state) || !is_asked_by_torch(state)) {
        return 0;
    }
    return ask(state, "check_asker", NULL);
}
