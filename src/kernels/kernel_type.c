/* kernel_type.c: the Kernel type, a pipeline that can be called, and the Argument type, which
 * shows one of its parameters.
 *
 * Owns:    one reference to the pipeline, and the names of its parameters.
 * Calls:   kernel_call.h for calls.
 * Threads: the GIL is held; any number of threads may call one Kernel.
 */
#include "kernels/kernel_object.h"

#include <structmember.h>

#include "kernels/kernel_call.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"
#include "values/dtype_type.h"

/* ---- Argument: one parameter of a kernel ---- */

typedef struct {
    PyObject_HEAD
    PyObject *name, *dtype; /* owned */
    const char *kind, *access;
    unsigned index;
    Py_ssize_t nbytes;
} ArgumentObject;

static ArgumentObject *
argument_cast(PyObject *op)
{
    return (ArgumentObject *)op;
}

/* The element type: of a vector one with lanes; None for matrices, structs and what Metal does
 * not tell.  Owned (+1). */
static PyObject *
element_type_of(md_state *state, const metal_type *type)
{
    if (type->lanes == 0 || type->columns > 0) {
        return Py_NewRef(Py_None);
    }
    DLDataType dtype = type->scalar;
    dtype.lanes = (uint16_t)type->lanes;
    return dtype_type_from_dl(state, dtype);
}

static PyObject *
argument_new(md_state *state, const kernel_parameter *parameter)
{
    PyObject *op = state->argument_type->tp_alloc(state->argument_type, 0);
    if (op == NULL) {
        return NULL;
    }
    ArgumentObject *self = argument_cast(op);
    self->name = Py_NewRef(parameter->name);
    self->kind = kernel_kind_names[parameter->kind];
    self->dtype = element_type_of(state, &parameter->type);
    self->access = !parameter->is_written ? "read"
                   : parameter->is_read   ? "read_write"
                                          : "write";
    self->index = parameter->index;
    self->nbytes = (Py_ssize_t)parameter->nbytes;
    if (self->dtype == NULL) {
        Py_CLEAR(op);
    }
    return op;
}

MD_REFUSE_NEW(argument_refuse_new,
              "Argument() cannot make an argument; a Kernel has them as its "
              "`arguments`.");

static PyObject *
argument_repr(PyObject *op)
{
    const ArgumentObject *self = argument_cast(op);
    return PyUnicode_FromFormat("Argument(name=%R, index=%u, kind='%s', dtype=%S, access='%s')",
                                self->name, self->index, self->kind, self->dtype, self->access);
}

static int
argument_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(argument_cast(op)->dtype);
    return 0;
}

static void
argument_dealloc(PyObject *op)
{
    ArgumentObject *self = argument_cast(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->name);
    Py_XDECREF(self->dtype);
    state_free_object(op);
}

static PyMemberDef argument_members[] = {
    {"name", T_OBJECT_EX, offsetof(ArgumentObject, name), READONLY,
     PyDoc_STR("The parameter's name in the source, which is its keyword in a call.")},
    {"index", T_UINT, offsetof(ArgumentObject, index), READONLY,
     PyDoc_STR("[[buffer(index)]], [[texture(index)]] and so on, by the kind.")},
    {"kind", T_STRING, offsetof(ArgumentObject, kind), READONLY,
     PyDoc_STR(
         "'buffer', 'texture', 'sampler', or 'threadgroup' for threadgroup memory, which is\n"
         "given by size.")},
    {"dtype", T_OBJECT_EX, offsetof(ArgumentObject, dtype), READONLY,
     PyDoc_STR(
         "The element type of what it points at, float32x4 for float4, or of what a texture\n"
         "gives; None for matrices, structs, samplers and types that Metal does not report.")},
    {"access", T_STRING, offsetof(ArgumentObject, access), READONLY,
     PyDoc_STR("'read' if it is const, else 'write' or 'read_write'.")},
    {"nbytes", T_PYSSIZET, offsetof(ArgumentObject, nbytes), READONLY,
     PyDoc_STR("Bytes of what it points at, sizeof a struct; 0 if Metal does not report it.")},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    argument_doc,
    "One parameter of a kernel that an argument is bound to, as Metal's reflection reports\n"
    "it.\n\n"
    "A Kernel makes it, as one of its `arguments`.  It never changes.\n\n"
    "Source: MTLComputePipelineReflection.");

static PyType_Slot argument_slots[] = {
    {Py_tp_doc, (void *)argument_doc},
    {Py_tp_new, argument_refuse_new},
    {Py_tp_dealloc, argument_dealloc},
    {Py_tp_traverse, argument_traverse},
    {Py_tp_members, argument_members},
    {Py_tp_repr, argument_repr},
    {0, NULL},
};

MD_SPEC(argument, "Argument", sizeof(ArgumentObject), 0, 0);

/* ---- calling a Kernel ---- */

static PyObject *
kernel_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return kernel_call_launch(op, args, PyVectorcall_NARGS(nargsf), kwnames, NULL);
}

PyDoc_STRVAR(kernel_time_doc,
             "time($self, /, *args, **kwargs)\n--\n\n"
             "Run the kernel once, wait for it, and return the seconds that the GPU took.\n\n"
             "The arguments are those of a call.  Other work on the GPU counts too: wait\n"
             "for work in flight before, and take the least of several runs.\n\n"
             "Returns\n-------\nfloat\n    Seconds; 0.0 where there are no threads.\n\n"
             "Raises\n------\n"
             "MetalError\n    The kernel failed; and whatever a call raises.\n\n"
             "Source: MTLCommandBuffer GPUStartTime and GPUEndTime.");

static PyObject *
kernel_time(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    double seconds = 0.0;
    PyObject *outputs = kernel_call_launch(op, args, nargs, kwnames, &seconds);
    if (outputs == NULL) {
        return NULL;
    }
    Py_DECREF(outputs);
    return PyFloat_FromDouble(seconds);
}

PyDoc_STRVAR(
    kernel_count_doc,
    "count($self, /, *args, **kwargs)\n--\n\n"
    "Run the kernel once, wait for it, and return what it did to memory: exact numbers that\n"
    "depend neither on the machine nor on timing.\n\n"
    "The arguments are those of a call.  The kernel is compiled once more, with a call before\n"
    "each access of its source.\n\n"
    "Returns\n-------\nsoftmetal.counting.KernelCount\n"
    "    Bytes and lines for each argument, accesses by source line, branches, barriers,\n"
    "    conflicts of threadgroup memory; print() it to see them beside the source.\n\n"
    "Raises\n------\n"
    "SoftwareMetalMissing\n    On a Mac: the counts need the software Metal.\n"
    "MetalError\n    The kernel touches memory that it may not, takes longer than\n"
    "    SOFTMETAL_KERNEL_TIMEOUT, or fails otherwise; and whatever a call raises.\n\n"
    "Threads: one launch is counted at a time; the others wait.\n\n"
    "Source: docs/counting.md.");

/* By a tuple and a dict, as Python's side takes them on. */
static PyObject *
kernel_count(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *keywords = kwargs == NULL ? PyDict_New() : Py_NewRef(kwargs);
    PyObject *given =
        keywords == NULL ? NULL : PyTuple_Pack(3, kernel_cast(op)->recipe, args, keywords);
    PyObject *result = given == NULL ? NULL : call_python(CALL_COUNT, op, given);
    Py_XDECREF(given);
    Py_XDECREF(keywords);
    return result;
}

/* ---- making ---- */

int
kernel_set_recipe(PyObject *kernel, PyObject *text, PyObject *constants, PyObject *language)
{
    kernel_cast(kernel)->recipe =
        PyTuple_Pack(3, text, constants, language == NULL ? Py_None : language);
    return kernel_cast(kernel)->recipe == NULL ? -1 : 0;
}

static int
set_parameter(kernel_parameter *parameter, const bridge_parameter *facts, PyObject *kernel_name)
{
    parameter->name = PyUnicode_InternFromString(facts->name);
    if (parameter->name == NULL) {
        return -1;
    }
    if (facts->kind == BRIDGE_PARAMETER_OTHER) {
        /* unreached: only on a Mac */
        return errors_raise(PyExc_TypeError,
                            "Library.kernel: the parameter '%U' of %R is no buffer, "
                            "threadgroup memory, texture "
                            "or sampler, and only those can be given.",
                            parameter->name, kernel_name);
    }
    parameter->subject =
        PyUnicode_FromFormat("%U: argument '%U'", kernel_name, parameter->name);
    parameter->type = metal_type_of(facts->data_type);
    parameter->nbytes = facts->nbytes;
    parameter->alignment = facts->alignment > 0 ? facts->alignment : 1;
    parameter->index = facts->index;
    parameter->kind = facts->kind;
    parameter->is_depth = facts->is_depth;
    parameter->texture_type = facts->texture_type;
    parameter->count = facts->count;
    parameter->is_read = facts->is_read;
    parameter->is_written = facts->is_written;
    /* its UTF-8 is made here, so that a refusal finds it */
    bool is_ready = parameter->subject != NULL && PyUnicode_AsUTF8(parameter->subject) != NULL;
    return is_ready ? 0 : -1;
}

/* The alignment of arguments in the constant address space; Metal's reflection does not name the space.  Source:
 * Metal Feature Set Tables, "minimum constant buffer offset alignment" of Apple's GPUs. */
#define CONSTANT_ALIGNMENT 4

/* One that Metal lists at `place`, or one that it does not list at all: of that the signature
 * alone is known. */
static int
set_place(const KernelObject *self, kernel_parameter *parameter,
          const bridge_kernel_facts *facts, PyObject *row)
{
    bridge_parameter unlisted = {.is_read = true};
    int place, is_threadgroup, is_constant;
    if (!PyArg_ParseTuple(row, "ispp", &place, &unlisted.name, &is_threadgroup, &is_constant)) {
        return -1;
    }
    unlisted.kind = is_threadgroup ? BRIDGE_PARAMETER_THREADGROUP : BRIDGE_PARAMETER_BUFFER;
    parameter->is_unlisted = place < 0;
    int result =
        set_parameter(parameter, place < 0 ? &unlisted : &facts->parameters[place], self->name);
    if (is_constant && parameter->alignment < CONSTANT_ALIGNMENT) {
        parameter->alignment = CONSTANT_ALIGNMENT;
    }
    return result;
}

/* How many samplers may be given from this one on: up to the next, as Metal does not tell how many an array has. */
static size_t
sampler_room(const bridge_kernel_facts *facts, unsigned index)
{
    unsigned next = KERNEL_MOST_SAMPLERS;
    for (size_t i = 0; i < facts->count; i++) {
        const bridge_parameter *one = &facts->parameters[i];
        bool is_next =
            one->kind == BRIDGE_PARAMETER_SAMPLER && one->index > index && one->index < next;
        next = is_next ? one->index : next;
    }
    return next > index ? next - index : 1;
}

static int
set_parameters(KernelObject *self, const bridge_kernel_facts *facts, PyObject *order)
{
    int buffers = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        if (set_place(self, &self->parameters[i], facts, PyList_GET_ITEM(order, i)) < 0) {
            return -1;
        }
        kernel_parameter *parameter = &self->parameters[i];
        bool is_buffer = parameter->kind == BRIDGE_PARAMETER_BUFFER;
        if (parameter->kind == BRIDGE_PARAMETER_SAMPLER) {
            parameter->count = sampler_room(facts, parameter->index);
        }
        self->buffer_count += kernel_parameter_is_given(parameter);
        buffers += is_buffer;
        self->texture_count +=
            is_buffer || !kernel_parameter_is_given(parameter) ? 0 : (int)parameter->count;
    }
    bool is_small = buffers <= KERNEL_MOST_BUFFERS && Py_SIZE(self) <= KERNEL_MOST_PARAMETERS;
    if (!is_small) { /* unreached: compilers refuse more buffers */
        PyErr_Format(PyExc_TypeError,
                     "Library.kernel: %R has %zd parameters; Metal binds at most %d buffers.",
                     self->name, Py_SIZE(self), KERNEL_MOST_BUFFERS);
    }
    return is_small ? 0 : -1;
}

PyObject *
kernel_new_object(md_state *state, const device_record *device, PyObject *name,
                  bridge_kernel *kernel, const bridge_kernel_facts *facts, PyObject *order)
{
    PyObject *op = order == NULL ? NULL
                                 : state->kernel_type->tp_alloc(state->kernel_type,
                                                                PyList_GET_SIZE(order));
    if (op == NULL) {
        bridge_kernel_release(kernel);
        return NULL;
    }
    KernelObject *self = kernel_cast(op); /* all else in it is 0 */
    self->vectorcall = kernel_vectorcall;
    self->kernel = kernel;
    self->device = device;
    self->name = Py_NewRef(name);
    self->function = PyUnicode_AsUTF8(name);
    self->width = facts->width;
    self->max_threads = facts->max_threads;
    self->threadgroup_nbytes = facts->threadgroup_nbytes;
    self->max_threadgroup_nbytes = facts->max_threadgroup_nbytes;
    if (self->function == NULL || set_parameters(self, facts, order) < 0) {
        Py_CLEAR(op);
    }
    return op;
}

MD_REFUSE_NEW(kernel_refuse_new,
              "Kernel() cannot make a kernel; call kernel(source), or take one of "
              "a Library: Library(source)['name'].");

static void
kernel_dealloc(PyObject *op)
{
    KernelObject *self = kernel_cast(op);
    PyObject_GC_UnTrack(op);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Py_XDECREF(self->parameters[i].name);
        Py_XDECREF(self->parameters[i].subject);
    }
    Py_XDECREF(self->name);
    Py_XDECREF(self->recipe);
    bridge_kernel_release(self->kernel);
    state_free_object(op);
}

/* ---- the type ---- */

static PyObject *
kernel_get_arguments(PyObject *op, void *Py_UNUSED(closure))
{
    const KernelObject *self = kernel_cast(op);
    Py_ssize_t count = 0, next = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        count += !self->parameters[i].is_unlisted;
    }
    PyObject *arguments = PyTuple_New(count);
    for (Py_ssize_t i = 0; arguments != NULL && i < Py_SIZE(self); i++) {
        if (!self->parameters[i].is_unlisted) {
            state_fill_tuple(&arguments, next++,
                             argument_new(state_of(op), &self->parameters[i]));
        }
    }
    return arguments;
}

MD_GETTER(kernel_get_device, device_of_record(state_of(op), kernel_cast(op)->device));

static PyGetSetDef kernel_getset[] = {
    MD_FACT(kernel, arguments,
            "A tuple of Argument: the parameters that are bound, in the order of the "
            "signature."),
    MD_FACT(kernel, device, "The Device that it runs on."),
    MD_LAST_FACT,
};

static PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(KernelObject, vectorcall), READONLY, NULL},
    {"name", T_OBJECT_EX, offsetof(KernelObject, name), READONLY,
     PyDoc_STR("Its name: [[host_name]], or the function's.")},
    {"thread_execution_width", T_PYSSIZET, offsetof(KernelObject, width), READONLY,
     PyDoc_STR("Threads of a SIMD-group, which run in step.")},
    {"max_total_threads", T_PYSSIZET, offsetof(KernelObject, max_threads), READONLY,
     PyDoc_STR("The most threads that a threadgroup of it can have.")},
    {"threadgroup_memory", T_PYSSIZET, offsetof(KernelObject, threadgroup_nbytes), READONLY,
     PyDoc_STR("Bytes of threadgroup memory that its own variables take.")},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef kernel_methods[] = {
    {"count", (PyCFunction)(void (*)(void))kernel_count, METH_VARARGS | METH_KEYWORDS,
     kernel_count_doc},
    {"time", MD_FASTCALL(kernel_time), kernel_time_doc},
    CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};

static PyObject *
kernel_repr(PyObject *op)
{
    const KernelObject *self = kernel_cast(op);
    PyObject *names = kernel_names(self);
    PyObject *text = names == NULL
                         ? NULL
                         : PyUnicode_FromFormat("<metal_dlpack.Kernel %U(%U) on metal:%d>",
                                                self->name, names, self->device->index);
    Py_XDECREF(names);
    return text;
}

PyDoc_STRVAR(
    kernel_doc,
    "A Metal kernel, ready to be called: k(x, y, 0.5, n=1000).\n\n"
    "Made by kernel(source) and by a Library.  Arguments are given in the order of the\n"
    "signature, or by name:\n\n"
    "- an Array, a Buffer, or any tensor on Metal that speaks DLPack: used in place, from its\n"
    "  first item on.  Its items must have the type that the parameter points at, as far as\n"
    "  Metal reports it.\n"
    "- a number, or for a vector a tuple of numbers: converted to the type that the parameter\n"
    "  points at; what does not fit raises OverflowError.\n"
    "- bytes, or a NumPy scalar of a structured dtype: a struct of that size.\n"
    "- a Texture for a texture, a tuple of them for an array of textures, a Sampler for a "
    "sampler.\n\n"
    "Keywords of the launch\n----------------------\n"
    "n : int\n"
    "    The number of threads, along x.\n"
    "threads : int or tuple of int\n    Threads along x, y and z.\n"
    "groups, group : int or tuple of int\n"
    "    Threadgroups, and threads in each.  `group` may be given with n and threads too;\n"
    "    the default suits the kernel.\n"
    "stream : Stream or int, optional\n"
    "    Default: the innermost `with stream:`, else the device's default stream.\n"
    "threadgroup_memory : dict of str to int, optional\n"
    "    Bytes for each parameter in threadgroup memory.\n"
    "strides : {'ignore'}, optional\n"
    "    Take Arrays that are not contiguous too; the kernel knows their strides.\n"
    "resources : list, optional\n"
    "    What the kernel reaches by addresses (Buffer.gpu_address, Texture.gpu_resource_id): "
    "Arrays,\n"
    "    Buffers, Textures and tensors on Metal.  They count as arguments that it may write, "
    "read-only ones as read.\n"
    "out : (shape, dtype), or several of them, optional\n"
    "    Allocate so many Arrays, whose items are undefined before the kernel, for the "
    "parameters\n"
    "    that the kernel may write and for which nothing is given, in their order.\n\n"
    "Returns\n-------\n"
    "None; with out= an Array, or a tuple of them.\n\n"
    "Give exactly one of n, threads and groups.  0 threads: the arguments are checked, and\n"
    "nothing is launched.  Give a parameter with the name of such a keyword by position; only "
    "one\n"
    "called out may be given by name too.  A call returns at once; whatever uses the bytes "
    "later\n"
    "waits.  Parameters that are not const count as written.\n\n"
    "Raises\n------\n"
    "TypeError, ValueError, OverflowError\n"
    "    An argument does not fit its parameter: the message names both.\n"
    "MetalError\n    Metal gave no command buffer.  A kernel that fails raises later, at a "
    "wait.\n\n"
    "Threads: any number may call one Kernel.  Its arguments live until the GPU is done.\n\n"
    "Source: MTLComputeCommandEncoder; docs/kernels.md.");

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, (void *)kernel_doc},
    {Py_tp_new, kernel_refuse_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, state_visit_type},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, kernel_methods},
    {Py_tp_getset, kernel_getset},
    {Py_tp_members, kernel_members},
    {Py_tp_repr, kernel_repr},
    {Py_mp_subscript, kernel_subscript},
    {0, NULL},
};

MD_SPEC(kernel, "Kernel", offsetof(KernelObject, parameters), sizeof(kernel_parameter),
        Py_TPFLAGS_HAVE_VECTORCALL);
