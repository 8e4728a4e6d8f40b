/* stream_type.c: the Stream type.
 *
 * Owns:    one reference to a metal_stream.
 * Calls:   work.h to submit, waiting.h to wait, stream_protocol.h for other objects.
 * Threads: the GIL is held; released while submitting and waiting.
 */
#include "streams/stream_object.h"

#include <structmember.h>

#include "metal/work.h"
#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/device.h"
#include "streams/event_type.h"
#include "streams/stream_protocol.h"

/* ---- making ---- */

ARGS_NEW(stream_type_new, "Stream", 0, 1, 0, "device", "label")
{
    md_state *state = PyType_GetModuleState(type);
    const char *label;
    if (args_text_or_none(function, "label", values[1], &label) < 0) {
        return NULL;
    }
    const device_record *device = device_convert(state, function, values[0]);
    if (device == NULL) {
        return NULL;
    }
    metal_stream *stream;
    bridge_status status = WITHOUT_GIL(stream_new(device, &stream));
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, function, status, NULL, 0);
    }
    if (label != NULL) {
        bridge_queue_set_label(stream->queue, label);
    }
    return stream_wrap(state, stream);
}

PyDoc_STRVAR(stream_from_handle_doc,
             "from_handle($type, handle, /)\n--\n\n"
             "The stream of an existing MTLCommandQueue, from PyObjC, a C library, another "
             "framework.\n\n"
             "Parameters\n----------\n"
             "handle : int\n"
             "    The id<MTLCommandQueue>, or an object of PyObjC for it; it is retained.\n\n"
             "Returns\n-------\n"
             "Stream\n"
             "    Equal to every other Stream of the same queue.\n\n"
             "Raises\n------\n"
             "TypeError\n    The handle is not an int.\n"
             "ValueError\n    The handle is not an MTLCommandQueue of a known device.\n\n"
             "synchronize() and record() include what others commit to the queue, but the\n"
             "buffers that such work uses are not known.");

static PyObject *
stream_from_handle(PyObject *type, PyObject *value)
{
    md_state *state = PyType_GetModuleState((PyTypeObject *)type);
    void *handle;
    if (errors_check_fork(state, "Stream.from_handle") < 0 ||
        args_handle(state, "Stream.from_handle", "id<MTLCommandQueue>", bridge_handle_is_queue,
                    value, &handle) < 0) {
        return NULL;
    }
    const device_record *device = devices_find(bridge_queue_device(handle));
    if (device == NULL) { /* unreached: another machine, or NumPy 1 */
        return PyErr_Format(PyExc_ValueError,
                            "Stream.from_handle: the queue's device is none of "
                            "metal_dlpack.devices().");
    }
    metal_stream *stream;
    bridge_status status = stream_of_queue(handle, device, &stream);
    if (status != BRIDGE_OK) { /* unreached: no test makes it fail here */
        return errors_from_bridge(state, "Stream.from_handle", status, NULL, 0);
    }
    return stream_wrap(state, stream);
}

/* ---- work ---- */

PyDoc_STRVAR(stream_query_doc,
             "query($self, /)\n--\n\n"
             "Say whether all work that was submitted to the stream is done.  Never waits,\n"
             "never raises a failure.\n\n"
             "Returns\n-------\n"
             "bool\n"
             "    Work that others committed to its queue is not counted: call\n"
             "    record().query() for that.");

static PyObject *
stream_query(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(work_is_done(stream_cast(op)));
}

PyDoc_STRVAR(
    stream_synchronize_doc,
    "synchronize($self, /)\n--\n\n"
    "Block until everything committed to the queue so far is done.\n\n"
    "Raises\n------\n"
    "MetalError\n"
    "    Some of it failed, and no wait has raised the failure yet; the text is Metal's.\n"
    "    The stream stays usable.\n\n"
    "Threads: the GIL is released; Ctrl-C ends the wait.");

static PyObject *
stream_synchronize(PyObject *op, PyObject *Py_UNUSED(unused))
{
    metal_stream *stream = stream_cast(op);
    return stream_synchronize_all(state_of(op), "Stream.synchronize", &stream, 1) < 0
               ? NULL
               : Py_NewRef(Py_None);
}

PyDoc_STRVAR(stream_record_doc,
             "record($self, /, event=None)\n--\n\n"
             "Mark this moment: what is committed to the queue so far comes before it.\n\n"
             "Parameters\n----------\n"
             "event : Event, optional\n"
             "    Becomes this moment; default: a new one.\n\n"
             "Returns\n-------\nEvent\n\n"
             "Raises\n------\n"
             "TypeError\n    event is not an Event.\n"
             "MetalError\n    Metal gave no command buffer.\n\n"
             "Source: MTLCommandBuffer encodeSignalEvent:value:.");

ARGS_FUNCTION(stream_record, op, "Stream.record", 0, 1, 0, "event")
{
    md_state *state = state_of(op);
    uint64_t value;
    bool is_given = args_is_given(values[0]);
    if (is_given && !Py_IS_TYPE(values[0], state->event_type)) {
        return PyErr_Format(PyExc_TypeError,
                            "Stream.record: event must be an Event, not %.100s.",
                            Py_TYPE(values[0])->tp_name);
    }
    PyObject *event = is_given ? Py_NewRef(values[0]) : event_new_object(state);
    if (event == NULL || stream_mark_now(state, function, stream_cast(op), &value) < 0) {
        Py_XDECREF(event);
        return NULL;
    }
    event_set(event_cast(event), stream_cast(op), stream_cast(op)->event, value);
    return event;
}

PyDoc_STRVAR(stream_wait_doc,
             "wait($self, event, /)\n--\n\n"
             "Make later work of the stream wait, on the GPU, for something else.\n\n"
             "Parameters\n----------\n"
             "event : Event, Stream, Array, or object with __metal_stream__\n"
             "    An Event: its moment.  A Stream: all that is on its queue by now.  An Array: "
             "our work in\n"
             "    flight on its buffer.\n\n"
             "Raises\n------\n"
             "TypeError\n    `event` is none of these.\n"
             "ValueError\n    What __metal_stream__ returned are not such handles.\n"
             "MetalError\n    Metal gave no command buffer.\n\n"
             "Returns at once: the CPU does not wait.\n\n"
             "Source: MTLCommandBuffer encodeWaitForEvent:value:; docs/metal_stream.md.");

static PyObject *
stream_wait_for(PyObject *op, PyObject *what)
{
    return stream_protocol_await(state_of(op), "Stream.wait", stream_cast(op), what) < 0
               ? NULL
               : Py_NewRef(Py_None);
}

PyDoc_STRVAR(stream_metal_stream_doc,
             "__metal_stream__($self, /)\n--\n\n"
             "What to wait for on the GPU before using what this stream makes.\n\n"
             "Returns\n-------\n"
             "tuple of int\n"
             "    (version, queue, event, value): 1, the id<MTLCommandQueue>, the "
             "id<MTLSharedEvent> and the\n"
             "    value it has once all that is on the queue by now is done.  Borrowed from "
             "the stream.\n\n"
             "Source: docs/metal_stream.md.");

static PyObject *
stream_metal_stream(PyObject *op, PyObject *Py_UNUSED(unused))
{
    uint64_t value;
    if (stream_mark_now(state_of(op), "Stream.__metal_stream__", stream_cast(op), &value) < 0) {
        return NULL;
    }
    return stream_protocol_answer(stream_cast(op), value);
}

/* ---- the type ---- */

static PyMethodDef stream_methods[] = {
    {"from_handle", stream_from_handle, METH_O | METH_CLASS, stream_from_handle_doc},
    {"query", stream_query, METH_NOARGS, stream_query_doc},
    {"synchronize", stream_synchronize, METH_NOARGS, stream_synchronize_doc},
    {"record", MD_FASTCALL(stream_record), stream_record_doc},
    {"wait", stream_wait_for, METH_O, stream_wait_doc},
    {"__metal_stream__", stream_metal_stream, METH_NOARGS, stream_metal_stream_doc},
    {"__enter__", stream_enter, METH_NOARGS, stream_enter_doc},
    {"__exit__", MD_FASTCALL(stream_exit), stream_exit_doc},
    {"__aenter__", stream_aenter, METH_NOARGS, stream_aenter_doc},
    {"__aexit__", MD_FASTCALL(stream_aexit), stream_aexit_doc},
    CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};

MD_GETTER(stream_get_handle, PyLong_FromVoidPtr(stream_cast(op)->queue));
MD_GETTER(stream_get_device, device_of_record(state_of(op), stream_cast(op)->device));

static PyObject *
stream_get_label(PyObject *op, void *Py_UNUSED(closure))
{
    char label[256];
    bridge_queue_copy_label(stream_cast(op)->queue, label, sizeof label);
    return state_label(label);
}

static PyGetSetDef stream_getset[] = {
    MD_FACT(stream, handle,
            "The id<MTLCommandQueue> as an int: borrowed, valid as long as the Stream."),
    MD_FACT(stream, device, "The Device it works on."),
    MD_FACT(stream, label, "The name that Metal's tools show, or None."),
    MD_LAST_FACT,
};

static PyMemberDef stream_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(StreamObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
stream_repr(PyObject *op)
{
    const metal_stream *stream = stream_cast(op);
    char label[256];
    bridge_queue_copy_label(stream->queue, label, sizeof label);
    const char *space = label[0] == '\0' ? "" : " '", *quote = label[0] == '\0' ? "" : "'";
    return PyUnicode_FromFormat("<metal_dlpack.Stream%s%s%s %p on metal:%d>", space, label,
                                quote, (void *)stream->queue, stream->device->index);
}

static PyObject *
stream_compare(PyObject *op, PyObject *other, int how)
{
    if (!Py_IS_TYPE(other, Py_TYPE(op)) || (how != Py_EQ && how != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool is_same = stream_cast(op) == stream_cast(other);
    return PyBool_FromLong(how == Py_EQ ? is_same : !is_same);
}

static Py_hash_t
stream_hash(PyObject *op)
{
    Py_hash_t hash = (Py_hash_t)((uintptr_t)stream_cast(op) >> 4);
    return hash == -1 ? -2 : hash;
}

static void
stream_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    stream_release(stream_cast(op));
    state_free_object(op);
}

PyDoc_STRVAR(
    stream_doc,
    "Stream(device=None, *, label=None)\n--\n\n"
    "An MTLCommandQueue whose work is tracked: it runs in order, beside that of other\n"
    "streams.\n\n"
    "Parameters\n----------\n"
    "device : Device or str, optional\n"
    "    Default: the system's default device.\n"
    "label : str, optional\n"
    "    A name for Metal's tools.\n\n"
    "Raises\n------\n"
    "MetalError\n    Metal gave no queue.\n\n"
    "`with stream:` makes it the current stream of the thread, or of the asyncio task;\n"
    "`async with stream:` too, and awaits its work at the end.  A buffer that two streams use "
    "is\n"
    "handed over on the GPU; the CPU waits only where it reads or writes the bytes.\n\n"
    "Work continues after the Stream is dropped.  If it fails when no Event of the stream\n"
    "and no buffer that it used is left, the MetalError goes to sys.unraisablehook.\n\n"
    "Threads: any number may use one stream; each submission is whole.\n\n"
    "Source: MTLCommandQueue; docs/synchronisation.md.");

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, (void *)stream_doc},
    {Py_tp_new, stream_type_new},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_traverse, state_visit_type},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {Py_tp_getset, stream_getset},
    {Py_tp_repr, stream_repr},
    {Py_tp_richcompare, stream_compare},
    {Py_tp_hash, stream_hash},
    {0, NULL},
};

MD_SPEC(stream, "Stream", sizeof(StreamObject), 0, 0);
