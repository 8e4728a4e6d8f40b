/* event_type.c: the type Event: a moment in the work of a queue.
 *
 * Owns:    one reference to a shared event, and to the stream that it belongs to.
 * Calls:   waiting.h to wait, metal_bridge.h for foreign events, stream.h to wake an event loop.
 * Threads: the GIL is held; released while waiting.  Metal's threads ring without it.
 */
#include "streams/event_type.h"

#include <structmember.h>

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "python/waiting.h"
#include "streams/stream_object.h"

/* ---- making ---- */

PyObject *
event_new_object(md_state *state)
{
    return state->event_type->tp_alloc(state->event_type, 0); /* all in it is 0 */
}

void
event_set(EventObject *self, metal_stream *stream, bridge_event *event, uint64_t value)
{
    metal_stream *old_stream = self->stream;
    bridge_event *old_event = self->event;
    if (stream != NULL) {
        stream_retain(stream);
    }
    bridge_event_retain(event);
    self->stream = stream;
    self->event = event;
    self->value = value;
    bridge_event_release(old_event);
    stream_release(old_stream);
}

ARGS_NEW(event_new, "Event", 0, 0, 0, NULL)
{
    return event_new_object(PyType_GetModuleState(type));
}

PyDoc_STRVAR(
    event_from_handle_doc,
    "from_handle($type, handle, value)\n--\n\n"
    "The moment when an existing MTLSharedEvent reaches a value.\n\n"
    "Parameters\n----------\n"
    "handle : int\n"
    "    The id<MTLSharedEvent>, or an object of PyObjC for it; it is retained.\n"
    "value : int\n"
    "    0 to 2**64 - 1.  If nobody signals it, a wait for it never ends.\n\n"
    "Returns\n-------\nEvent\n\n"
    "Raises\n------\n"
    "TypeError\n    The handle or the value is not an int.\n"
    "ValueError\n    The handle is not an MTLSharedEvent, or the value is out of range.");

/* A value that an event can have: 0 to 2**64 - 1. */
static int
convert_value(PyObject *value, uint64_t *out)
{
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) {
        return errors_raise(
            PyExc_ValueError,
            "Event.from_handle: value (%R) is negative or does not fit in 64 bits.", value);
    }
    return 0;
}

ARGS_FUNCTION(event_from_handle, type, "Event.from_handle", 0, 2, 2, "handle", "value")
{
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    void *handle;
    uint64_t value;
    /* The handle last, and into an Event that is there: a value's __index__, and the collector, can
     * let go of what it names. */
    PyObject *op = event_new_object(state);
    if (op == NULL || convert_value(values[1], &value) < 0 ||
        args_handle(state, function, "id<MTLSharedEvent>", bridge_handle_is_event, values[0],
                    &handle) < 0) {
        Py_XDECREF(op);
        return NULL;
    }
    event_set(event_cast(op), NULL, handle, value);
    return op;
}

/* ---- asking and waiting ---- */

PyDoc_STRVAR(
    event_query_doc,
    "query($self, /)\n--\n\n"
    "Say whether the work before it is done.  Never waits.  True for an Event that was\n"
    "never recorded.");

static PyObject *
event_query(PyObject *op, PyObject *Py_UNUSED(unused))
{
    EventObject *self = event_cast(op);
    if (self->stream != NULL) {
        return PyBool_FromLong(stream_has_reached(self->stream, self->value));
    }
    return PyBool_FromLong(self->event == NULL ||
                           bridge_event_value(self->event) >= self->value);
}

/* What the wait is about, kept: another thread can record the Event anew meanwhile. */
static int
wait_for_moment(md_state *state, EventObject *self, uint64_t timeout_ns)
{
    metal_stream *stream = self->stream;
    bridge_event *event = self->event;
    uint64_t value = self->value;
    int result;
    if (stream != NULL) {
        stream_retain(stream);
        result = waiting_for_stream(state, "Event.wait", stream, value, timeout_ns);
        stream_release(stream);
        return result;
    }
    bridge_event_retain(event);
    result = waiting_for_event(event, value, timeout_ns);
    bridge_event_release(event);
    return result;
}

PyDoc_STRVAR(event_wait_doc,
             "wait($self, /, timeout=None)\n--\n\n"
             "Block until the work before it is done.\n\n"
             "Parameters\n----------\n"
             "timeout : float, optional\n"
             "    Seconds, 0 or more; None: no limit.\n\n"
             "Returns\n-------\n"
             "bool\n"
             "    False if the time is over before the work is done.\n\n"
             "Raises\n------\n"
             "MetalError\n"
             "    Work of its stream failed, now or earlier, and no wait has raised the\n"
             "    failure yet.\n"
             "ValueError\n    A negative timeout.\n\n"
             "Threads: the GIL is released; Ctrl-C ends the wait.\n\n"
             "Source: MTLSharedEvent waitUntilSignaledValue:timeoutMS:.");

ARGS_FUNCTION(event_wait, op, "Event.wait", 0, 1, 0, "timeout")
{
    uint64_t timeout_ns;
    if (waiting_convert_timeout(function, values[0], &timeout_ns) < 0) {
        return NULL;
    }
    if (event_cast(op)->event == NULL) {
        Py_RETURN_TRUE;
    }
    int result = wait_for_moment(state_of(op), event_cast(op), timeout_ns);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

/* ---- awaiting ---- */

/* The moment that it is now: the Event can be recorded anew while a task waits. */
static PyObject *
event_await(PyObject *op)
{
    const EventObject *self = event_cast(op);
    PyObject *moment = event_new_object(state_of(op));
    if (moment == NULL) {
        return NULL;
    }
    event_set(event_cast(moment), self->stream, self->event, self->value);
    bool is_foreign = self->stream == NULL && self->event != NULL;
    PyObject *waiting =
        call_python(is_foreign ? CALL_AWAIT_FOREIGN_EVENT : CALL_AWAIT_EVENT, moment, NULL);
    Py_DECREF(moment);
    return waiting;
}

PyDoc_STRVAR(event_ring_doc,
             "_ring($self, descriptor, /)\n--\n\n"
             "Write a byte to a descriptor, once, when the work before it is done.\n\n"
             "Parameters\n----------\n"
             "descriptor : int\n"
             "    It does not block, and stays open until Event._silence.\n\n"
             "Returns\n-------\n"
             "bool\n    False if the work is done already: then nothing is written.\n\n"
             "Raises\n------\n"
             "MetalError\n    This is a forked child.\n"
             "TypeError\n    It is not an Event of a stream.");

static PyObject *
event_ring(PyObject *op, PyObject *value)
{
    EventObject *self = event_cast(op);
    int descriptor = PyObject_AsFileDescriptor(value);
    bool is_reached;
    if (descriptor < 0) {
        return NULL;
    }
    if (self->stream == NULL) {
        return PyErr_Format(PyExc_TypeError, "Event._ring: %R is not of a stream.", op);
    }
    bridge_status status = stream_ring(self->stream, self->value, descriptor, &is_reached);
    if (status == BRIDGE_NO_MEMORY) {
        return PyErr_NoMemory(); /* unreached: not in every run */
    }
    if (errors_check_status(state_of(op), "await Event", status, NULL, 0) < 0) {
        return NULL;
    }
    return PyBool_FromLong(!is_reached);
}

PyDoc_STRVAR(event_silence_doc, "_silence(descriptor, /)\n--\n\n"
                                "No Event writes to a descriptor any more: it can be closed.");

static PyObject *
event_silence(PyObject *Py_UNUSED(type), PyObject *value)
{
    int descriptor = PyObject_AsFileDescriptor(value);
    if (descriptor < 0) {
        return NULL;
    }
    stream_silence(descriptor);
    Py_RETURN_NONE;
}

static PyMethodDef event_methods[] = {
    {"_ring", event_ring, METH_O, event_ring_doc},
    {"_silence", event_silence, METH_O | METH_STATIC, event_silence_doc},
    {"from_handle", MD_FASTCALL(event_from_handle) | METH_CLASS, event_from_handle_doc},
    {"query", event_query, METH_NOARGS, event_query_doc},
    {"wait", MD_FASTCALL(event_wait), event_wait_doc},
    {NULL, NULL, 0, NULL},
};

MD_GETTER(event_get_handle, PyLong_FromVoidPtr(event_cast(op)->event));
MD_GETTER(event_get_value, PyLong_FromUnsignedLongLong(event_cast(op)->value));

static PyGetSetDef event_getset[] = {
    MD_FACT(event, handle,
            "The id<MTLSharedEvent> as an int, borrowed from the Event; 0 before the first\n"
            "record."),
    MD_FACT(event, value, "The value that is signalled when it is reached."),
    MD_LAST_FACT,
};

static PyMemberDef event_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(EventObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
event_repr(PyObject *op)
{
    EventObject *self = event_cast(op);
    if (self->event == NULL) {
        return PyUnicode_FromString("<metal_dlpack.Event, not recorded>");
    }
    return PyUnicode_FromFormat("<metal_dlpack.Event %p at value %llu>", (void *)self->event,
                                (unsigned long long)self->value);
}

/* ---- the object's life ---- */

static void
event_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    bridge_event_release(event_cast(op)->event);
    stream_release(event_cast(op)->stream);
    state_free_object(op);
}

PyDoc_STRVAR(
    event_doc,
    "Event()\n--\n\n"
    "A moment in the work of a queue: an MTLSharedEvent and the value that it reaches then.\n\n"
    "Stream.record() makes one, Stream.wait() lets another queue wait for it on the GPU,\n"
    "Event.wait() lets the CPU wait.  An Event that was never recorded counts as reached.\n\n"
    "`await event` lets an asyncio task wait, and blocks no thread: the thread of Metal's "
    "that\n"
    "finishes the work wakes the event loop.  It raises MetalError as wait() does.  Any number "
    "of\n"
    "tasks and loops may await one Event; a cancelled task does not stop the work, and the\n"
    "next wait raises the failure if it fails.  It works under uvloop, and under anyio on\n"
    "asyncio; under trio call `await trio.to_thread.run_sync(event.wait)`.\n\n"
    "Source: MTLSharedEvent; docs/synchronisation.md.");

static PyType_Slot event_slots[] = {
    {Py_tp_doc, (void *)event_doc}, {Py_tp_new, event_new},
    {Py_tp_dealloc, event_dealloc}, {Py_tp_traverse, state_visit_type},
    {Py_tp_methods, event_methods}, {Py_tp_members, event_members},
    {Py_tp_getset, event_getset},   {Py_tp_repr, event_repr},
    {Py_am_await, event_await},     {0, NULL},
};

MD_SPEC(event, "Event", sizeof(EventObject), 0, 0);
