/* storage_mode.c: see storage_mode.h. */
#include "python/storage_mode.h"

#include <stdlib.h>
#include <strings.h>

#include "python/args.h"
#include "python/errors.h"

#define STORAGE_VARIABLE "METAL_DLPACK_STORAGE_MODE"

#define STORAGE_AS_NAME(mode, name) [mode] = name,
static const char *const mode_names[] = {BRIDGE_STORAGE_LIST(STORAGE_AS_NAME)};
#undef STORAGE_AS_NAME
enum { MODE_COUNT = sizeof mode_names / sizeof mode_names[0] };

/* state->storage_choice: 0 until the variable is read, then CHOICE_MODE + the mode. */
enum { CHOICE_UNREAD, CHOICE_MODE };

const char *
storage_mode_name(bridge_storage mode)
{
    return mode_names[mode];
}

static bool
mode_from_name(const char *name, bridge_storage *out)
{
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        if (strcasecmp(name, mode_names[mode]) == 0) {
            *out = (bridge_storage)mode;
            return true;
        }
    }
    return false;
}

static int
read_variable(md_state *state)
{
    bridge_storage mode;
    const char *value = getenv(STORAGE_VARIABLE);
    state->storage_choice = CHOICE_MODE + BRIDGE_SHARED;
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    if (mode_from_name(value, &mode)) {
        state->storage_choice = CHOICE_MODE + (int)mode;
        return 0;
    }
    return PyErr_WarnFormat(
        PyExc_RuntimeWarning, 2,
        STORAGE_VARIABLE
        " ('%.100s') is not one of 'shared', 'managed', 'private'; 'shared' is used.",
        value);
}

static int
default_mode(md_state *state, bridge_storage *out)
{
    if (state->storage_choice == CHOICE_UNREAD && read_variable(state) < 0) {
        return -1;
    }
    *out = (bridge_storage)(state->storage_choice - CHOICE_MODE);
    return 0;
}

int
storage_mode_convert(md_state *state, const char *function, PyObject *value,
                     bridge_storage *out)
{
    *out = BRIDGE_SHARED;
    if (!args_is_given(value)) {
        return default_mode(state, out);
    }
    const char *name;
    if (args_text(function, "storage", value, &name) < 0) {
        return -1;
    }
    if (!mode_from_name(name, out)) {
        return errors_raise(PyExc_ValueError,
                            "%s: storage (%R) must be 'shared', 'managed' or 'private'.",
                            function, value);
    }
    return 0;
}

PyDoc_STRVAR(
    get_storage_mode_doc,
    "get_storage_mode()\n--\n\n"
    "The storage mode of allocations that name none.\n\n"
    "METAL_DLPACK_STORAGE_MODE ('shared', 'managed' or 'private', any letter case) is read\n"
    "at the first use and kept.  Without it: 'shared'.  Another value gives one\n"
    "RuntimeWarning and 'shared'.\n\n"
    "Returns\n-------\nstr");

static PyObject *
core_get_storage_mode(PyObject *module, PyObject *Py_UNUSED(unused))
{
    bridge_storage mode;
    if (default_mode(state_of_module(module), &mode) < 0) {
        return NULL;
    }
    return PyUnicode_FromString(storage_mode_name(mode));
}

PyMethodDef storage_mode_functions[] = {
    {"get_storage_mode", core_get_storage_mode, METH_NOARGS, get_storage_mode_doc},
    {NULL, NULL, 0, NULL},
};
