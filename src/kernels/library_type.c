/* library_type.c: the Library type, Metal source that was compiled, and kernel().
 *
 * Owns:    one reference to the MTLLibrary; the Kernels made of it, by name and constants.
 * Calls:   kernel_source.c to compile the source, metal_bridge.h for its kernels.
 * Threads: the GIL is held; released while Metal compiles, which can take seconds.
 */
#include "kernels/library_object.h"

#include <structmember.h>

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"

/* ---- making ---- */

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
                            "`kernel void name(device float *x, ...)`. " LIBRARY_TEMPLATE_HINT);
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
