/* module.c: makes metal_dlpack._core out of its parts; holds no logic of its own. */
#include <dlpack/dlpack.h>

#include "array/array.h"
#include "array/array_methods.h"
#include "exchange/asarray.h"
#include "exchange/dlpack_export.h"
#include "exchange/dlpack_import.h"
#include "exchange/foreign_types.h"
#include "kernels/kernel_object.h"
#include "kernels/texture_object.h"
#include "module/module.h"
#include "python/errors.h"
#include "python/owners.h"
#include "python/state.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "streams/stream_object.h"
#include "values/dtype_type.h"
#include "values/layout_type_object.h"

module_part *module_parts;

static PyObject *
core_types(PyObject *module, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of_module(module);
    PyObject *list = PyList_New(0);
#define MD_APPEND(field, spec, is_public) \
    if (list != NULL) { \
        state_append(&list, Py_NewRef((PyObject *)state->field)); \
    }
    MD_TYPE_LIST(MD_APPEND)
#undef MD_APPEND
    return list;
}

static int
make_names(md_state *state)
{
#define MD_INTERN(name) \
    state->str_##name = PyUnicode_InternFromString(#name); \
    if (state->str_##name == NULL) { \
        return -1; \
    }
    MD_NAME_LIST(MD_INTERN)
#undef MD_INTERN
    return 0;
}

/* What from_dlpack says to producers: the version it reads, and the names of its keywords. */
static int
make_call_constants(md_state *state)
{
    state->max_version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    state->keywords_version = PyTuple_Pack(1, state->str_max_version);
    state->keywords_copy = PyTuple_Pack(2, state->str_max_version, state->str_copy);
    state->keywords_stream = PyTuple_Pack(2, state->str_max_version, state->str_stream);
    state->keywords_stream_copy =
        PyTuple_Pack(3, state->str_max_version, state->str_stream, state->str_copy);
    state->minus_one = PyLong_FromLong(-1);
    bool is_made = state->max_version && state->keywords_version && state->keywords_copy &&
                   state->keywords_stream && state->keywords_stream_copy && state->minus_one;
    return is_made ? 0 : -1;
}

static int
add_functions(PyObject *module)
{
    PyMethodDef *const lists[] = {device_functions,        storage_mode_functions,
                                  memory_functions,        numpy_memory_functions,
                                  array_make_functions,    asarray_functions,
                                  dlpack_import_functions, shares_memory_functions,
                                  capture_functions,       explain_functions,
                                  refusal_functions,       threads_functions,
                                  work_facts_functions,    kernel_functions,
                                  timeline_functions,      residency_functions,
                                  texture_functions,       sampler_functions};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (PyModule_AddFunctions(module, lists[i]) < 0) {
            return -1;
        }
    }
    for (const module_part *part = module_parts; part != NULL; part = part->next) {
        if (part->functions != NULL && PyModule_AddFunctions(module, part->functions) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
make_types(PyObject *module, md_state *state)
{
#define MD_MAKE(field, spec, is_public) \
    state->field = (PyTypeObject *)PyType_FromModuleAndSpec(module, &(spec), NULL); \
    if (state->field == NULL) { \
        return -1; \
    } \
    if ((is_public) && PyModule_AddType(module, state->field) < 0) { \
        return -1; \
    }
    MD_TYPE_LIST(MD_MAKE)
#undef MD_MAKE
    return 0;
}

static int
core_exec(PyObject *module)
{
    md_state *state = state_of_module(module);
    state->owners = owners_new();
    if (state->owners == NULL || make_names(state) < 0 || make_call_constants(state) < 0 ||
        make_types(module, state) < 0 || errors_make_classes(module, state) < 0 ||
        array_absent_add(module, state) < 0 || exchange_table_add(state) < 0 ||
        add_functions(module) < 0) {
        return -1;
    }
    if (threads_read_variable() < 0 || layout_type_prepare(state) < 0 ||
        stream_current_prepare(state) < 0 || c_api_add_capsule(module) < 0 ||
        metal_type_add_names(module) < 0 || dtype_type_add_names(module, state) < 0) {
        return -1;
    }
    for (const module_part *part = module_parts; part != NULL; part = part->next) {
        if (part->add != NULL && part->add(module) < 0) {
            return -1;
        }
    }
    stream_lost_watch();
    return 0;
}

static int
core_traverse(PyObject *module, visitproc visit, void *arg)
{
    md_state *state = state_of_module(module);
#define MD_VISIT_TYPE(field, spec, is_public) Py_VISIT(state->field);
#define MD_VISIT_OBJECT(field) Py_VISIT(state->field);
    MD_TYPE_LIST(MD_VISIT_TYPE)
    MD_OBJECT_LIST(MD_VISIT_OBJECT)
#undef MD_VISIT_TYPE
#undef MD_VISIT_OBJECT
    for (int i = 0; i < MD_FOREIGN_TYPES; i++) {
        Py_VISIT(state->foreign_types[i].type);
        Py_VISIT(state->foreign_types[i].requires_grad);
        Py_VISIT(state->foreign_types[i].sync);
    }
    return 0;
}

static int
core_clear(PyObject *module)
{
    md_state *state = state_of_module(module);
    /* array_free_spares needs it */
    PyTypeObject *array_type = (PyTypeObject *)Py_XNewRef((PyObject *)state->array_type);
#define MD_CLEAR_TYPE(field, spec, is_public) Py_CLEAR(state->field);
#define MD_CLEAR_OBJECT(field) Py_CLEAR(state->field);
#define MD_CLEAR_NAME(name) Py_CLEAR(state->str_##name);
    MD_TYPE_LIST(MD_CLEAR_TYPE)
    MD_OBJECT_LIST(MD_CLEAR_OBJECT)
    MD_NAME_LIST(MD_CLEAR_NAME)
#undef MD_CLEAR_TYPE
#undef MD_CLEAR_OBJECT
    foreign_types_forget(state);
#undef MD_CLEAR_NAME
    array_free_spares(state);
    Py_XDECREF((PyObject *)array_type);
    return 0;
}

static void
core_free(void *module)
{
    (void)core_clear((PyObject *)module);
    md_state *state = state_of_module(module);
    owners_close(state->owners);
    state->owners = NULL;
}

static PyObject *
core_forget_types(PyObject *module, PyObject *Py_UNUSED(unused))
{
    foreign_types_forget(state_of_module(module));
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"_forget_types", core_forget_types, METH_NOARGS,
     PyDoc_STR("_forget_types($module, /)\n--\n\nLook the types of producers up again.")},
    {"_types", core_types, METH_NOARGS,
     PyDoc_STR("_types($module, /)\n--\n\nEvery type of the module, for the tests.")},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef core_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "metal_dlpack._core",
    .m_size = sizeof(md_state),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
