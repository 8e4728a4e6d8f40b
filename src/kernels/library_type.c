/* library_type.c: the Library type, Metal source that was compiled, and kernel().
 *
 * Owns:    one reference to the MTLLibrary; the Kernels made of it, by name and constants.
 * Calls:   kernel_source.c to compile the source, metal_bridge.h for its kernels.
 * Threads: the GIL is held; released while Metal compiles, which can take seconds.
 */
#include "kernels/kernel_object.h"

#include <structmember.h>

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"

typedef struct {
    PyObject_HEAD
    bridge_library *library;     /* owned (+1) */
    const device_record *device; /* borrowed for ever */
    PyObject *text;              /* owned: the source, as it was compiled */
    PyObject *name;              /* owned: the source's, in errors */
    PyObject *language;          /* owned; NULL: the newest that the system has */
    PyObject *kernels;           /* owned: a tuple of names */
    PyObject *
        made; /* owned: (name, constants) -> Kernel; the text with an instantiation -> Library */
    bridge_compile_options chosen; /* how it was compiled */
} LibraryObject;

static LibraryObject *
library_cast(PyObject *op)
{
    return (LibraryObject *)op;
}

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

/* Of a text as it goes to the compiler: owned (+1), or NULL with an exception. */
static PyObject *
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

/* Owned (+1), or NULL with an exception. */
static PyObject *
library_make(md_state *state, const kernel_source *request)
{
    bridge_compile_options chosen;
    const device_record *device = device_convert(state, request->function, request->device);
    PyObject *text = device == NULL ? NULL : kernel_source_text(request, &chosen);
    PyObject *op = text == NULL ? NULL
                                : library_of_text(state, request->function, device, text,
                                                  &chosen, request->name, request->language);
    Py_XDECREF(text);
    return op;
}

ARGS_NEW(library_new, "Library", 0, 1, 1, "source", "device", "name", "defines", "include",
         "math", "language")
{
    kernel_source request = {function,  values[0], values[1], values[2],
                             values[3], values[4], values[5], values[6]};
    return library_make(PyType_GetModuleState(type), &request);
}

/* ---- kernels ---- */

/* KeyError with the names that there are. */
static void
refuse_name(const LibraryObject *self, PyObject *name)
{
    PyObject *text =
        PyUnicode_FromFormat("Library.kernel: %R is not a kernel of the library, which has "
                             "%R.",
                             name, self->kernels);
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
        kernel_source_raise(state, "Library.kernel", status, message, is_source);
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
static PyObject *
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

PyDoc_STRVAR(
    library_kernel_doc,
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

static PyObject *
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

static PyObject *
library_subscript(PyObject *op, PyObject *name)
{
    return library_find(op, name, NULL);
}

/* ---- kernels as attributes ---- */

/* Library's own attributes come first: lib['name'] reaches a kernel of such a name. */
static PyObject *
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

static PyObject *
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

/* ---- kernel() ---- */

PyDoc_STRVAR(
    kernel_function_doc,
    "kernel($module, source, /, name=None, *, constants=None, device=None, defines=None, "
    "include=None,\n       math='safe', language=None)\n--\n\n"
    "Compile Metal source and take one kernel of it.\n\n"
    "Parameters\n----------\n"
    "source : str\n    Metal Shading Language.  It runs in this process: trust it as you trust "
    "Python code.\n"
    "name : str, optional\n    Which kernel; default: the only one.\n"
    "constants : dict, optional\n    As Library.kernel.\n"
    "device, defines, include, math, language\n    As Library.\n\n"
    "Returns\n-------\nKernel\n\n"
    "Raises\n------\n"
    "ValueError\n    There is not exactly one kernel, and no name is given.\n"
    "KeyError\n    No kernel has the name.\n"
    "CompileError, MetalError\n    As Library.\n\n"
    "Threads: the GIL is released while Metal compiles.\n\n"
    "Source: MTLDevice newLibraryWithSource:options:error:.");

/* The name that was given, or the only one: borrowed.  NULL with ValueError. */
static PyObject *
choose_name(const LibraryObject *self, PyObject *given)
{
    if (args_is_given(given)) {
        return given;
    }
    if (PyTuple_GET_SIZE(self->kernels) == 1) {
        return PyTuple_GET_ITEM(self->kernels, 0);
    }
    if (PyTuple_GET_SIZE(self->kernels) == 0) {
        return PyErr_Format(PyExc_ValueError,
                            "kernel: the source has no kernel; declare one as "
                            "`kernel void name(device float *x, ...)`.");
    }
    return PyErr_Format(PyExc_ValueError,
                        "kernel: the source has %zd kernels, %R; choose one by name=.",
                        PyTuple_GET_SIZE(self->kernels), self->kernels);
}

ARGS_FUNCTION(core_kernel, module, "kernel", 1, 2, 1, "source", "name", "constants", "device",
              "defines", "include", "math", "language")
{
    kernel_source request = {function,  values[0], values[3], NULL,
                             values[4], values[5], values[6], values[7]};
    PyObject *library = library_make(state_of_module(module), &request);
    PyObject *name = library == NULL ? NULL : choose_name(library_cast(library), values[1]);
    PyObject *kernel = name == NULL ? NULL : library_find(library, name, values[2]);
    Py_XDECREF(library);
    return kernel;
}

PyMethodDef kernel_functions[] = {
    {"kernel", MD_FASTCALL(core_kernel), kernel_function_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static PyObject *
library_repr(PyObject *op)
{
    const LibraryObject *self = library_cast(op);
    Py_ssize_t count = PyTuple_GET_SIZE(self->kernels);
    return PyUnicode_FromFormat("<metal_dlpack.Library %R of %zd kernel%s on metal:%d>",
                                self->name, count, count == 1 ? "" : "s", self->device->index);
}

MD_GETTER(library_get_device, device_of_record(state_of(op), library_cast(op)->device));

static int
library_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(library_cast(op)->kernels);
    Py_VISIT(library_cast(op)->made);
    return 0;
}

static void
library_dealloc(PyObject *op)
{
    LibraryObject *self = library_cast(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->text);
    Py_XDECREF(self->name);
    Py_XDECREF(self->language);
    Py_XDECREF(self->kernels);
    Py_XDECREF(self->made);
    bridge_library_release(self->library);
    state_free_object(op);
}

static PyMethodDef library_methods[] = {
    {"kernel", MD_FASTCALL(library_kernel), library_kernel_doc},
    {"__dir__", library_dir, METH_NOARGS,
     PyDoc_STR("__dir__($self, /)\n--\n\nThe attributes, and the names of the kernels.")},
    CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef library_getset[] = {
    MD_FACT(library, device, "The Device that it was compiled for."),
    MD_LAST_FACT,
};

static PyMemberDef library_members[] = {
    {"kernels", T_OBJECT_EX, offsetof(LibraryObject, kernels), READONLY,
     PyDoc_STR("The names of its kernels: [[host_name]], or the function's.")},
    {"name", T_OBJECT_EX, offsetof(LibraryObject, name), READONLY,
     PyDoc_STR("What the source is called in errors.")},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    library_doc,
    "Library(source, *, device=None, name='program_source', defines=None, include=None,\n"
    "        math='safe', language=None)\n--\n\n"
    "Metal source, compiled: its kernels run on Arrays, and on any tensor on Metal, in "
    "place.\n\n"
    "Parameters\n----------\n"
    "source : str\n"
    "    Metal Shading Language.  On a Mac Metal compiles it; elsewhere clang does, for the "
    "CPU.\n"
    "    It runs in this process: trust it as you trust Python code.\n"
    "device : Device or str, optional\n"
    "    Default: the system's default device.\n"
    "name : str, optional\n"
    "    What errors call the source.\n"
    "defines : dict, optional\n"
    "    Macros: str, int, float or bool by name.  None: defined as nothing.\n"
    "include : str, path, or sequence of them, optional\n"
    "    Folders in which #include \"file\" finds its files.\n"
    "math : {'safe', 'relaxed', 'fast'}, optional\n"
    "    How far floating-point arithmetic may be reordered.  'safe' is what torch and MLX\n"
    "    compile with: precise functions; NaN and infinity are themselves.  'fast' may take\n"
    "    them for impossible, and a RuntimeWarning names each line that asks for them.\n"
    "language : str, optional\n"
    "    A version of Metal's language: '3.1'.  Default: the newest that the system has.\n\n"
    "lib.name, lib['name'] and lib.kernel('name') are one Kernel, made when it is first asked "
    "for.\n"
    "A kernel that is called as an attribute of Library's own, such as 'device', is "
    "lib['device'].\n\n"
    "Raises\n------\n"
    "CompileError\n    The source does not compile; the lines are the user's.\n"
    "MetalError\n    There is no compiler; the message says how to get one.\n"
    "TypeError, ValueError\n"
    "    A define has a name or value that a macro cannot have; the system has no such\n"
    "    language.\n\n"
    "Threads: any.  The GIL is released while Metal compiles.\n\n"
    "Source: MTLDevice newLibraryWithSource:options:error:; docs/kernels.md.");

static PyType_Slot library_slots[] = {
    {Py_tp_doc, (void *)library_doc},
    {Py_tp_new, library_new},
    {Py_tp_dealloc, library_dealloc},
    {Py_tp_traverse, library_traverse},
    {Py_tp_methods, library_methods},
    {Py_tp_getset, library_getset},
    {Py_tp_members, library_members},
    {Py_tp_repr, library_repr},
    {Py_mp_subscript, library_subscript},
    {Py_tp_getattro, library_getattro},
    {0, NULL},
};

MD_SPEC(library, "Library", sizeof(LibraryObject), 0, 0);
