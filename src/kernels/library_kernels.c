/* library_kernels.c: a Library of a text, and its kernels: by name, with constants, of templates, as
 * attributes.
 *
 * Owns:    nothing; what is made is the Library's.
 * Calls:   metal_bridge.h for kernels; metal_dlpack/language/templates.py for the text of an
 *          instantiation.
 * Threads: the GIL is held; released while Metal compiles.
 */
#include "kernels/library_object.h"

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"

/* ---- making ---- */

/* A tuple of the kernels' names: owned (+1). */
static PyObject *
names_of(bridge_library *library)
{
    size_t count = 0;
    char **names = bridge_library_names(library, &count);
    if (names == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != NULL && i < count; i++) {
        state_fill_tuple(&tuple, (Py_ssize_t)i, PyUnicode_FromString(names[i]));
    }
    free(names);
    return tuple;
}

PyObject *
library_of_text(md_state *state, const char *function, const device_record *device,
                PyObject *text, const bridge_compile_options *chosen, PyObject *name,
                PyObject *language)
{
    bridge_library *library = kernel_source_compile(state, function, device, text, chosen);
    PyObject *op =
        library == NULL ? NULL : state->library_type->tp_alloc(state->library_type, 0);
    if (op == NULL) {
        bridge_library_release(library);
        return NULL;
    }
    LibraryObject *self = library_cast(op);
    self->library = library;
    self->text = Py_NewRef(text);
    self->device = device;
    self->language = Py_XNewRef(language);
    self->chosen = *chosen;
    self->name = args_is_given(name) ? Py_NewRef(name) : PyUnicode_FromString("program_source");
    self->kernels = names_of(library);
    self->made = PyDict_New();
    if (self->name == NULL || self->kernels == NULL || self->made == NULL) {
        Py_CLEAR(op);
    }
    return op;
}

/* ---- kernels ---- */

/* What a name that is no kernel's was meant for. */
static const char *
name_hint(const LibraryObject *self, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    PyErr_Clear();
    if (text != NULL && strchr(text, '.') != NULL) {
        return " What messages call the source is Library(source, name=...).";
    }
    bool is_template = text != NULL && strchr(text, '<') != NULL;
    return is_template || PyTuple_GET_SIZE(self->kernels) == 0 ? " " LIBRARY_TEMPLATE_HINT : "";
}

/* KeyError with the names that there are. */
static void
refuse_name(const LibraryObject *self, PyObject *name)
{
    PyObject *text =
        PyUnicode_FromFormat("Library.kernel: %R is not a kernel of the library, which has "
                             "%R.%s",
                             name, self->kernels, name_hint(self, name));
    if (text != NULL) {
        PyErr_SetObject(PyExc_KeyError, text);
        Py_DECREF(text);
    }
}

static PyObject *
make_kernel(const LibraryObject *self, md_state *state, PyObject *name,
            const kernel_constants *constants, PyObject *given)
{
    bridge_kernel *kernel = NULL;
    bridge_kernel_facts facts = {0};
    char *message = NULL;
    bool is_source = false;
    const char *function = PyUnicode_AsUTF8(name);
    if (function == NULL) {
        return NULL;
    }
    bridge_status status =
        WITHOUT_GIL(bridge_kernel_new(self->library, function, constants->values,
                                      constants->count, &kernel, &facts, &message, &is_source));
    if (status != BRIDGE_OK) {
        kernel_source_raise(state, "Library.kernel", status, message,
                            is_source ? self->text : NULL);
        return NULL;
    }
    PyObject *order = kernel_order_of(self->text, name, &facts);
    PyObject *op = kernel_new_object(state, self->device, name, kernel, &facts, order);
    PyObject *kept = args_is_given(given) ? PyDict_Copy(given) : Py_NewRef(Py_None);
    if (op != NULL &&
        (kept == NULL || kernel_set_recipe(op, self->text, kept, self->language) < 0)) {
        Py_CLEAR(op);
    }
    Py_XDECREF(kept);
    Py_XDECREF(order);
    free(facts.parameters);
    return op;
}

/* The Kernel of these constants, made once.  Where two threads make it, both get the one that
 * was there first.  Owned (+1). */
static PyObject *
find_or_make(const LibraryObject *self, md_state *state, PyObject *name,
             const kernel_constants *constants, PyObject *given)
{
    PyObject *key = PyTuple_Pack(2, name, constants->key);
    PyObject *found = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(self->made, key));
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *kernel = make_kernel(self, state, name, constants, given);
        if (kernel != NULL) {
            found = Py_XNewRef(PyDict_SetDefault(self->made, key, kernel));
            Py_DECREF(kernel);
        }
    }
    Py_XDECREF(key);
    return found;
}

/* `given`: the constants, a dict or NULL.  Owned (+1). */
PyObject *
library_find(PyObject *op, PyObject *name, PyObject *given)
{
    const LibraryObject *self = library_cast(op);
    md_state *state = state_of(op);
    const char *function;
    int is_there = PySequence_Contains(self->kernels, name);
    if (is_there != 1 || args_text("Library.kernel", "name", name, &function) < 0) {
        if (is_there == 0) {
            refuse_name(self, name);
        }
        return NULL;
    }
    bridge_constant_facts *facts = NULL;
    size_t count = 0;
    bridge_status status =
        WITHOUT_GIL(bridge_library_constants(self->library, function, &facts, &count));
    if (errors_check_status(state, "Library.kernel", status, NULL, 0) < 0) {
        return NULL;
    }
    kernel_constants constants;
    PyObject *kernel = NULL;
    if (kernel_constants_read(name, given, facts, count, &constants) == 0) {
        kernel = find_or_make(self, state, name, &constants, given);
        kernel_constants_free(&constants);
    }
    free(facts);
    return kernel;
}

/* ---- templates that the source does not instantiate ---- */

/* The Library of a text with an instantiation, made once: owned (+1). */
static PyObject *
find_or_make_instance(const LibraryObject *self, md_state *state, PyObject *text)
{
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(self->made, text));
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *library = library_of_text(state, "Library.kernel", self->device, text,
                                            &self->chosen, self->name, self->language);
        if (library != NULL) {
            found = Py_XNewRef(PyDict_SetDefault(self->made, text, library));
            Py_DECREF(library);
        }
    }
    return found;
}

/* `arguments`: a dict of the template's, by name.  Owned (+1). */
static PyObject *
library_instantiate(PyObject *op, PyObject *name, PyObject *constants, PyObject *arguments)
{
    const LibraryObject *self = library_cast(op);
    PyObject *asked = PyTuple_Pack(2, name, arguments);
    PyObject *found =
        asked == NULL ? NULL : call_python(CALL_SOURCE_INSTANTIATE, self->text, asked);
    PyObject *host_name, *text, *library = NULL, *kernel = NULL;
    if (found != NULL && PyArg_ParseTuple(found, "UU", &host_name, &text)) {
        bool is_there = PyUnicode_GET_LENGTH(text) == PyUnicode_GET_LENGTH(self->text);
        library = is_there ? Py_NewRef(op) : find_or_make_instance(self, state_of(op), text);
        kernel = library == NULL ? NULL : library_find(library, host_name, constants);
    }
    Py_XDECREF(library);
    Py_XDECREF(found);
    Py_XDECREF(asked);
    return kernel;
}

const char library_kernel_doc[] = PyDoc_STR(
    "kernel($self, name, /, constants=None, **template)\n--\n\n"
    "A kernel of the library, made once for the same constants.\n\n"
    "Parameters\n----------\n"
    "name : str\n    One of `kernels`; with `template`, a template of a kernel.\n"
    "constants : dict, optional\n"
    "    Values of the function constants that it uses, by name or index: numbers, and "
    "tuples of\n"
    "    numbers for vectors.  One that the source tests by "
    "is_function_constant_defined may be missing.\n"
    "template : str, int or bool, by name\n"
    "    Arguments of the template's parameters: kernel('scale', T='half', N=4).  Unless the\n"
    "    source has this instantiation, it is added to it and the whole is compiled anew.\n\n"
    "Returns\n-------\nKernel\n    The same object for the same name and values.\n\n"
    "Raises\n------\n"
    "KeyError\n    The library has no such kernel, the source no such template.\n"
    "TypeError, OverflowError\n    A constant is missing or unknown, or its value does "
    "not fit;\n    the same of a template's arguments.\n"
    "CompileError\n    The kernel does not compile with these values.\n"
    "MetalError\n    There is no compiler.\n\n"
    "Threads: the GIL is released while Metal compiles.\n\n"
    "Source: MTLFunctionConstantValues; Metal Shading Language Specification, host_name.");

PyObject *
library_kernel(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *constants = nargs == 2 ? args[1] : NULL, *arguments = NULL, *kernel = NULL;
    Py_ssize_t nkeywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    if (nargs != 1 && nargs != 2) {
        return PyErr_Format(PyExc_TypeError,
                            "Library.kernel: give the kernel's name, and at most its constants "
                            "behind it, not %zd arguments.",
                            nargs);
    }
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        if (constants == NULL && PyUnicode_CompareWithASCIIString(name, "constants") == 0) {
            constants = args[nargs + k];
            continue;
        }
        arguments = arguments == NULL ? PyDict_New() : arguments;
        if (arguments == NULL || PyDict_SetItem(arguments, name, args[nargs + k]) < 0) {
            Py_XDECREF(arguments);
            return NULL;
        }
    }
    kernel = arguments == NULL ? library_find(op, args[0], constants)
                               : library_instantiate(op, args[0], constants, arguments);
    Py_XDECREF(arguments);
    return kernel;
}

PyObject *
library_subscript(PyObject *op, PyObject *name)
{
    return library_find(op, name, NULL);
}

/* ---- kernels as attributes ---- */

/* Library's own attributes come first: lib['name'] reaches a kernel of such a name. */
PyObject *
library_getattro(PyObject *op, PyObject *name)
{
    const LibraryObject *self = library_cast(op);
    PyObject *found = PyObject_GenericGetAttr(op, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return found;
    }
    int is_kernel = PySequence_Contains(self->kernels, name);
    if (is_kernel == 1) {
        PyErr_Clear();
        return library_find(op, name, NULL);
    }
    return is_kernel < 0 ? NULL
                         : PyErr_Format(PyExc_AttributeError,
                                        "Library has no attribute %R, and no kernel of that "
                                        "name; its kernels are %R.",
                                        name, self->kernels);
}

PyObject *
library_dir(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *names = PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__dir__", "O", op);
    PyObject *all =
        names == NULL ? NULL : PySet_New(names); /* a kernel may have the name of one */
    Py_XDECREF(names);
    for (Py_ssize_t i = 0; all != NULL && i < PyTuple_GET_SIZE(library_cast(op)->kernels);
         i++) {
        if (PySet_Add(all, PyTuple_GET_ITEM(library_cast(op)->kernels, i)) < 0) {
            Py_CLEAR(all);
        }
    }
    return all;
}
