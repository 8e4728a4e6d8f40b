/* bell_type.c: the type `_Bell`, by which awaiting.py wakes an event loop.
 *
 * Owns:    one reference to a metal_bell.
 * Calls:   stream.h to have it rung.
 * Threads: the GIL is held; Metal's threads ring without it.
 */
#include <errno.h>

#include "metal/bell.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/event_type.h"

typedef struct {
    PyObject_HEAD
    metal_bell *bell; /* owned (+1) */
} BellObject;

static metal_bell *
bell_cast(PyObject *op)
{
    return ((BellObject *)op)->bell;
}

static PyObject *
bell_type_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const args_spec spec = {"_Bell", 0, 0, 0, {NULL}};
    PyObject *values[1];
    if (args_parse_tuple(&spec, args, kwargs, values) < 0) {
        return NULL;
    }
    metal_bell *bell = bell_new();
    if (bell == NULL) {
        return errno == ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
    }
    BellObject *self = PyObject_New(BellObject, type);
    if (self == NULL) {
        bell_release(bell);
        return NULL;
    }
    self->bell = bell;
    return (PyObject *)self;
}

PyDoc_STRVAR(bell_fileno_doc, "fileno($self, /)\n--\n\n"
                              "The file descriptor that becomes readable; the bell closes it.");

static PyObject *
bell_fileno(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(bell_descriptor(bell_cast(op)));
}

PyDoc_STRVAR(bell_watch_doc,
             "watch($self, event, /)\n--\n\n"
             "Ring, once, when an Event of a stream is reached.\n\n"
             "Returns\n-------\n"
             "bool\n    False if it is reached already: then the bell does not ring.\n\n"
             "Raises\n------\n"
             "TypeError\n    It is not an Event of a stream.\n"
             "MetalError\n    This is a forked child.");

static PyObject *
bell_watch(PyObject *op, PyObject *event)
{
    md_state *state = state_of(op);
    bool is_reached;
    if (!Py_IS_TYPE(event, state->event_type) || event_cast(event)->stream == NULL) {
        return PyErr_Format(PyExc_TypeError,
                            "_Bell.watch: event must be an Event of a stream, not %R.", event);
    }
    bridge_status status = stream_ring(event_cast(event)->stream, event_cast(event)->value,
                                       bell_cast(op), &is_reached);
    if (status == BRIDGE_NO_MEMORY) {
        return PyErr_NoMemory();
    }
    if (errors_check_status(state, "await Event", status, NULL, 0) < 0) {
        return NULL;
    }
    return PyBool_FromLong(!is_reached);
}

static PyMethodDef bell_methods[] = {
    {"fileno", bell_fileno, METH_NOARGS, bell_fileno_doc},
    {"watch", bell_watch, METH_O, bell_watch_doc},
    {NULL, NULL, 0, NULL},
};

static void
bell_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    bell_release(bell_cast(op));
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(bell_doc, "_Bell()\n--\n\n"
                       "A file descriptor that becomes readable when GPU work is done.");

static PyType_Slot bell_slots[] = {
    {Py_tp_doc, (void *)bell_doc},
    {Py_tp_new, bell_type_new},
    {Py_tp_dealloc, bell_dealloc},
    {Py_tp_methods, bell_methods},
    {0, NULL},
};

PyType_Spec bell_spec = {
    .name = "metal_dlpack._core._Bell",
    .basicsize = sizeof(BellObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = bell_slots,
};
