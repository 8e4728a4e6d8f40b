/* argument_type.c: the Argument type, one parameter of a kernel as Python sees it.
 *
 * Owns:    its attributes, which never change.
 * Threads: the GIL is held.
 */
#include "kernels/kernel_object.h"

#include <structmember.h>

#include "values/dtype_type.h"

typedef struct {
    PyObject_HEAD
    PyObject *name, *kind, *dtype, *access; /* each owned */
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

PyObject *
argument_new(md_state *state, const kernel_parameter *parameter)
{
    PyObject *op = state->argument_type->tp_alloc(state->argument_type, 0);
    if (op == NULL) {
        return NULL;
    }
    ArgumentObject *self = argument_cast(op);
    const char *access = !parameter->is_written ? "read"
                         : parameter->is_read   ? "read_write"
                                                : "write";
    self->name = Py_NewRef(parameter->name);
    self->kind =
        PyUnicode_InternFromString(parameter->is_threadgroup ? "threadgroup" : "buffer");
    self->dtype = element_type_of(state, &parameter->type);
    self->access = PyUnicode_InternFromString(access);
    self->index = parameter->index;
    self->nbytes = (Py_ssize_t)parameter->nbytes;
    if (self->kind == NULL || self->dtype == NULL || self->access == NULL) {
        Py_CLEAR(op);
    }
    return op;
}

static PyObject *
argument_refuse_new(PyTypeObject *Py_UNUSED(type), PyObject *Py_UNUSED(args),
                    PyObject *Py_UNUSED(kwargs))
{
    return PyErr_Format(PyExc_TypeError,
                        "Argument() cannot make an argument; a Kernel has them as its "
                        "`arguments`.");
}

static PyObject *
argument_repr(PyObject *op)
{
    const ArgumentObject *self = argument_cast(op);
    return PyUnicode_FromFormat("Argument(name=%R, index=%u, kind=%R, dtype=%S, access=%R)",
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
    PyTypeObject *type = Py_TYPE(op);
    ArgumentObject *self = argument_cast(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->name);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->dtype);
    Py_XDECREF(self->access);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef argument_members[] = {
    {"name", T_OBJECT_EX, offsetof(ArgumentObject, name), READONLY,
     PyDoc_STR("The parameter's name in the source, which is its keyword in a call.")},
    {"index", T_UINT, offsetof(ArgumentObject, index), READONLY,
     PyDoc_STR("[[buffer(index)]] or [[threadgroup(index)]].")},
    {"kind", T_OBJECT_EX, offsetof(ArgumentObject, kind), READONLY,
     PyDoc_STR("'buffer', or 'threadgroup' for threadgroup memory, which is given by size.")},
    {"dtype", T_OBJECT_EX, offsetof(ArgumentObject, dtype), READONLY,
     PyDoc_STR(
         "The element type of what it points at, float32x4 for float4; None for matrices,\n"
         "structs and types that Metal does not report.")},
    {"access", T_OBJECT_EX, offsetof(ArgumentObject, access), READONLY,
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

PyType_Spec argument_spec = {
    .name = "metal_dlpack.Argument",
    .basicsize = sizeof(ArgumentObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = argument_slots,
};
