/* stream_protocol.c: see stream_protocol.h. */
#include "streams/stream_protocol.h"

#include "python/attribute.h"
#include "python/errors.h"
#include "streams/event_type.h"
#include "streams/stream_object.h"
#include "streams/wait_rule.h"

#define STREAM_PROTOCOL_VERSION 1

/* The answer of an object's __metal_stream__. */
typedef struct stream_answer {
    /* the queue it works on, borrowed from the object; NULL: it does not say */
    bridge_queue *queue;
    /* owned (+1): has `value` once its last work is done; NULL: there is none */
    bridge_event *event;
    uint64_t value;
} stream_answer;

PyObject *
stream_protocol_answer(const metal_stream *stream, uint64_t value)
{
    return Py_BuildValue("(iNNK)", STREAM_PROTOCOL_VERSION, PyLong_FromVoidPtr(stream->queue),
                         PyLong_FromVoidPtr(stream->event), (unsigned long long)value);
}

/* ---- asking ---- */

static int
refuse_handle(const char *function, const void *handle, const char *kind)
{
    return errors_raise(
        PyExc_ValueError,
        "%s: __metal_stream__ returned %p, which is not the address of an id<%s>.", function,
        handle, kind);
}

static int
read_answer(const char *function, PyObject *tuple, stream_answer *out)
{
    bool is_answer = PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) == 4;
    for (int i = 0; is_answer && i < 4; i++) {
        is_answer = PyLong_Check(PyTuple_GET_ITEM(tuple, i));
    }
    if (!is_answer) {
        return errors_raise(
            PyExc_TypeError,
            "%s: __metal_stream__ must return (version, queue, event, value), four "
            "ints, not %R.",
            function, tuple);
    }
    long version = PyLong_AsLong(PyTuple_GET_ITEM(tuple, 0));
    if (version != STREAM_PROTOCOL_VERSION) {
        PyErr_Clear(); /* a number too long is another version too */
        return errors_raise(
            PyExc_ValueError,
            "%s: __metal_stream__ returned version %R; only version %d is supported.", function,
            PyTuple_GET_ITEM(tuple, 0), STREAM_PROTOCOL_VERSION);
    }
    out->queue = PyLong_AsVoidPtr(PyTuple_GET_ITEM(tuple, 1));
    out->event = PyLong_AsVoidPtr(PyTuple_GET_ITEM(tuple, 2));
    out->value = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, 3));
    if (PyErr_Occurred()) {
        return errors_raise(PyExc_ValueError,
                            "%s: __metal_stream__ returned %R; addresses and the event's value "
                            "must be 0 or more and fit in 64 bits.",
                            function, tuple);
    }
    if (out->queue != NULL && !bridge_handle_is_queue(out->queue)) {
        return refuse_handle(function, out->queue, "MTLCommandQueue");
    }
    return out->event == NULL || bridge_handle_is_event(out->event)
               ? 0
               : refuse_handle(function, out->event, "MTLSharedEvent");
}

/* What an Event says, or an object with __metal_stream__; `out`'s event is +1.  -1 with TypeError,
 * ValueError (no such handles, another version), or what it raised. */
static int
ask_moment(md_state *state, const char *function, PyObject *moment, stream_answer *out)
{
    int result = 0;
    PyObject *answer = NULL;
    if (Py_IS_TYPE(moment, state->event_type)) {
        *out = (stream_answer){NULL, event_cast(moment)->event, event_cast(moment)->value};
    }
    else {
        *out = (stream_answer){0};
        answer = PyObject_CallMethodNoArgs(moment, state->str___metal_stream__);
        result = answer == NULL ? -1 : read_answer(function, answer, out);
    }
    if (result == 0 && out->event != NULL) {
        bridge_event_retain(out->event);
    }
    Py_XDECREF(answer); /* the last one may be what holds the event */
    return result;
}

int
stream_protocol_speaks(md_state *state, PyObject *op)
{
    return Py_IS_TYPE(op, state->event_type)
               ? 1
               : attribute_exists(op, state->str___metal_stream__);
}

/* ---- waiting for a producer ---- */

int
stream_protocol_order(md_state *state, const char *function, const stream_order *order,
                      metal_storage *storage, PyObject *moment)
{
    stream_answer answer;
    if (ask_moment(state, function, moment, &answer) < 0) {
        return -1;
    }
    int result =
        wait_rule_for_moment(state, function, storage, order, answer.event, answer.value);
    bridge_event_release(answer.event);
    return result;
}

/* ---- waiting on the GPU ---- */

int
stream_protocol_await(md_state *state, const char *function, metal_stream *stream, PyObject *op)
{
    if (Py_IS_TYPE(op, state->array_type)) {
        return wait_rule_on_gpu(state, function, stream, storage_of_object(op));
    }
    if (Py_IS_TYPE(op, state->stream_type) && stream_cast(op) == stream) {
        return 0;
    }
    int speaks = stream_protocol_speaks(state, op);
    if (speaks < 0) {
        return -1;
    }
    if (!speaks) {
        return errors_raise(
            PyExc_TypeError,
            "%s: only an Event, a Stream, an Array or an object with __metal_stream__ can be "
            "waited for, not %.100s.",
            function, Py_TYPE(op)->tp_name);
    }
    stream_answer answer;
    if (ask_moment(state, function, op, &answer) < 0) {
        return -1;
    }
    bool is_ordered = answer.event == NULL || answer.event == stream->event; /* its own work */
    int result = is_ordered ? 0
                            : wait_rule_on_gpu_for_event(state, function, stream, answer.event,
                                                         answer.value, NULL);
    bridge_event_release(answer.event);
    return result;
}
