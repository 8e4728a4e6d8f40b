/* stream_object.c: the Stream object, and which stream is current: the innermost `with stream:`
 * of the thread, or the device's.
 *
 * Owns:    a tuple in each context, of the streams entered there: each thread has a context of
 *          its own, and each asyncio task.
 * Calls:   stream.h for the device's own, metal_dlpack.awaiting for `async with`.
 * Threads: the GIL is held.
 */
#include "streams/stream_object.h"

#include "metal/work.h"
#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "python/waiting.h"

/* ---- making ---- */

PyObject *
stream_wrap(md_state *state, metal_stream *stream)
{
    PyObject *op = state->stream_type->tp_alloc(state->stream_type, 0);
    if (op == NULL) {
        stream_release(stream);
        return NULL;
    }
    ((StreamObject *)op)->stream = stream;
    return op;
}

/* ---- waiting ---- */

int
stream_mark_now(md_state *state, const char *function, metal_stream *stream, uint64_t *value)
{
    bridge_status status = WITHOUT_GIL(work_mark(stream, value));
    return errors_check_status(state, function, status, NULL, 0);
}

int
stream_synchronize_all(md_state *state, const char *function, metal_stream *const *streams,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        if (stream_mark_now(state, function, streams[i], &value) < 0 ||
            waiting_for_value(state, function, streams[i], value, STREAM_FOREVER) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (waiting_for_stream(state, function, streams[i], 0, STREAM_FOREVER) < 0) {
            return -1;
        }
    }
    return 0;
}

int
stream_synchronize_device(md_state *state, const char *function, const device_record *device)
{
    if (stream_default(device) == NULL) {
        return errors_check_status(state, function, stream_default_status(), NULL, 0);
    }
    size_t count;
    metal_stream **streams = stream_list(device, &count);
    if (streams == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = stream_synchronize_all(state, function, streams, count);
    for (size_t i = 0; i < count; i++) {
        stream_release(streams[i]);
    }
    free(streams);
    return result;
}

/* ---- the device's own ---- */

metal_stream *
stream_default_taken(md_state *state, const char *function, const device_record *device)
{
    metal_stream *stream = stream_default(device);
    if (stream == NULL) {
        (void)errors_check_status(state, function, stream_default_status(), NULL, 0);
        return NULL;
    }
    stream_retain(stream);
    return stream;
}

PyObject *
stream_default_object(md_state *state, const device_record *device)
{
    if (state->default_streams == NULL) {
        state->default_streams = PyDict_New();
    }
    PyObject *key = PyLong_FromLong(device->index);
    PyObject *found = NULL;
    if (state->default_streams == NULL || key == NULL) {
        goto done;
    }
    found = Py_XNewRef(PyDict_GetItemWithError(state->default_streams, key));
    if (found != NULL || PyErr_Occurred()) {
        goto done;
    }
    metal_stream *stream = stream_default_taken(state, "Device.default_stream", device);
    if (stream == NULL) {
        goto done;
    }
    found = stream_wrap(state, stream);
    if (found != NULL && PyDict_SetItem(state->default_streams, key, found) < 0) {
        Py_CLEAR(found);
    }

done:
    Py_XDECREF(key);
    return found;
}

/* ---- with stream: ---- */

/* entered_mark and the streams that this context has entered, the innermost last: borrowed from the
 * context, NULL without an exception where there are none. */
static PyObject *
entered_tuple(md_state *state)
{
    PyObject *tuple = NULL;
    if (PyContextVar_Get(state->entered_streams, NULL, &tuple) < 0) {
        return NULL;
    }
    Py_XDECREF(tuple); /* the context has it */
    return tuple;
}

/* The index of the innermost stream; 0: none.  None stands for a stream that was left while
 * memory was short. */
static Py_ssize_t
innermost_of(PyObject *tuple)
{
    Py_ssize_t at =
        tuple == NULL || PyTuple_GET_SIZE(tuple) == 0 ? 0 : PyTuple_GET_SIZE(tuple) - 1;
    while (at > 0 && PyTuple_GET_ITEM(tuple, at) == Py_None) {
        at--;
    }
    return at;
}

/* NULL for `tuple`: an exception is set.  -1: the context may have taken it all the same, as it
 * does in CPython 3.11 where there is no memory for the token. */
static int
set_entered(md_state *state, PyObject *tuple)
{
    PyObject *token = tuple == NULL ? NULL : PyContextVar_Set(state->entered_streams, tuple);
    Py_XDECREF(token);
    return token == NULL ? -1 : 0;
}

/* Take a stream out of a tuple that a context may have: else what follows would run on the
 * stream, and nobody would wait for it. */
static void
forget_stream(PyObject *tuple, Py_ssize_t at)
{
    PyObject *op = PyTuple_GET_ITEM(tuple, at);
    PyTuple_SET_ITEM(tuple, at, Py_NewRef(Py_None));
    Py_DECREF(op);
}

int
stream_current_prepare(md_state *state)
{
    state->entered_streams = PyContextVar_New("metal_dlpack.entered_streams", NULL);
    state->entered_mark = PyList_New(0);
    return state->entered_streams == NULL || state->entered_mark == NULL ? -1 : 0;
}

PyObject *
stream_entered(md_state *state)
{
    /* As a rule: two loads instead of a look-up.  No count of blocks would do: a task begins with a
     * copy of its maker's context, and each may leave the block, or neither. */
    if (state->entered_mark == NULL /* at the end */ || Py_REFCNT(state->entered_mark) == 1) {
        return NULL;
    }
    PyObject *tuple = entered_tuple(state);
    Py_ssize_t at = innermost_of(tuple);
    return at == 0 ? NULL : PyTuple_GET_ITEM(tuple, at);
}

const char stream_enter_doc[] =
    "__enter__($self, /)\n--\n\n"
    "Make it the current stream of this thread, or of this asyncio task.  Returns the Stream.";

PyObject *
stream_enter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of(op);
    PyObject *tuple = entered_tuple(state);
    if (tuple == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t count = innermost_of(tuple) + 1;
    PyObject *longer = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; longer != NULL && i <= count; i++) {
        PyObject *item = i == 0       ? state->entered_mark
                         : i == count ? op
                                      : PyTuple_GET_ITEM(tuple, i);
        PyTuple_SET_ITEM(longer, i, Py_NewRef(item));
    }
    int result = set_entered(state, longer);
    if (result < 0 && longer != NULL) {
        forget_stream(longer, count);
    }
    Py_XDECREF(longer);
    return result < 0 ? NULL : Py_NewRef(op);
}

const char stream_exit_doc[] =
    "__exit__($self, type, value, traceback, /)\n--\n\n"
    "Restore the stream that was current before.  Does not wait.\n\n"
    "Raises\n------\n"
    "RuntimeError\n"
    "    This thread or task has entered another stream since, or has never entered this one.";

PyObject *
stream_exit(PyObject *op, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs),
            PyObject *Py_UNUSED(kwnames))
{
    md_state *state = state_of(op);
    PyObject *tuple = entered_tuple(state);
    if (tuple == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t at = innermost_of(tuple);
    if (at == 0 || PyTuple_GET_ITEM(tuple, at) != op) {
        return PyErr_Format(PyExc_RuntimeError,
                            "Stream.__exit__: it is not the stream that this thread "
                            "(or asyncio task) entered last.");
    }
    Py_INCREF(tuple); /* the context's reference goes */
    PyObject *shorter = PyTuple_GetSlice(tuple, 0, at == 1 ? 0 : at);
    int result = set_entered(state, shorter);
    if (result < 0) {
        forget_stream(tuple, at);
    }
    Py_XDECREF(shorter);
    Py_DECREF(tuple);
    return result < 0 ? NULL : Py_NewRef(Py_False);
}

/* ---- async with stream: ---- */

const char stream_aenter_doc[] =
    "__aenter__($self, /)\n--\n\n"
    "Make it the current stream of this asyncio task, as `with stream:` does.\n\n"
    "Returns\n-------\n"
    "Awaitable\n    Awaiting it gives the Stream.";

PyObject *
stream_aenter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return call_python(CALL_AWAIT_ENTER, op, NULL);
}

const char stream_aexit_doc[] =
    "__aexit__($self, type, value, traceback, /)\n--\n\n"
    "Restore the stream that was current before; then await this stream's work.  Blocks no\n"
    "thread.  If the block raised, it does not wait.\n\n"
    "Raises\n------\n"
    "MetalError\n    Work of the stream failed, and no wait has raised it yet.\n"
    "RuntimeError\n"
    "    This task has entered another stream since, or has never entered this one.";

/* The block is left here, or an allocation that fails before the await would keep it open. */
PyObject *
stream_aexit(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "Stream.__aexit__", 3, 3, 3, {"type", "value", "traceback", NULL}};
    PyObject *values[3];
    PyObject *left = args_parse(&spec, args, nargs, kwnames, values) < 0
                         ? NULL
                         : stream_exit(op, args, nargs, kwnames);
    if (left == NULL) {
        return NULL;
    }
    Py_DECREF(left);
    return call_python(CALL_AWAIT_LEAVE, op, values[0]);
}

/* ---- failures that no wait can report ---- */

static bool is_call_pending; /* atomic: Py_AddPendingCall has been told */

static int
report(void *Py_UNUSED(context))
{
    __atomic_store_n(&is_call_pending, false, __ATOMIC_RELEASE);
    md_state *state = state_of_interpreter();
    /* imported elsewhere only, or being cleared */
    if (state == NULL || state->metal_error == NULL) {
        PyErr_Clear();
        return 0;
    }
    bridge_error error;
    while (stream_take_lost(&error)) {
        (void)errors_from_bridge(state, "GPU work that nobody waited for",
                                 BRIDGE_COMMAND_FAILED, &error, 0);
        PyErr_WriteUnraisable((PyObject *)state->stream_type);
    }
    return 0;
}

static void
ask_for_report(void)
{
    if (!Py_IsInitialized() || __atomic_exchange_n(&is_call_pending, true, __ATOMIC_ACQ_REL)) {
        return;
    }
    if (Py_AddPendingCall(report, NULL) < 0) { /* unreached: the queue is full */
        /* The interpreter's queue is full: the next one lost takes this one along. */
        __atomic_store_n(&is_call_pending, false, __ATOMIC_RELEASE);
    }
}

void
stream_lost_watch(void)
{
    stream_on_lost(ask_for_report);
}

/* ---- what a `stream` argument says ---- */

/* A Stream, or the handle of a living one's queue; `*out` is +1.  `others` names what else the
 * function takes. */
static int
convert(md_state *state, const char *function, const char *others, PyObject *value,
        metal_stream **out)
{
    *out = NULL;
    if (Py_IS_TYPE(value, state->stream_type)) {
        *out = stream_cast(value);
        stream_retain(*out);
        return 0;
    }
    if (!PyLong_Check(value) || PyBool_Check(value)) {
        return errors_raise(
            PyExc_TypeError,
            "%s: stream must be a Stream, the handle of its command queue (an int), %s, not "
            "%.100s.",
            function, others, Py_TYPE(value)->tp_name);
    }
    void *handle = PyLong_AsVoidPtr(value);
    PyErr_Clear(); /* an int that is no address is no handle either */
    *out = handle == NULL ? NULL : stream_find(handle);
    if (*out != NULL) {
        return 0;
    }
    return errors_raise(
        PyExc_BufferError,
        "%s: stream (%R) is not the handle of a command queue that metal_dlpack knows; pass "
        "a Stream, %s.",
        function, value, others);
}

int
stream_convert_target(md_state *state, const char *function, PyObject *value,
                      metal_stream **out)
{
    *out = NULL;
    PyObject *entered = !args_is_given(value) ? stream_entered(state) : value;
    return entered == NULL ? 0 : convert(state, function, "or None", entered, out);
}

/* SPEC export-stream-other */
int
stream_convert_order(md_state *state, const char *function, PyObject *value, stream_order *out)
{
    *out = (stream_order){false, NULL};
    if (!args_is_given(value)) {
        return 0;
    }
    if (PyLong_Check(value) && !PyBool_Check(value)) {
        int overflow;
        out->is_ordered = PyLong_AsLongAndOverflow(value, &overflow) == -1 && overflow == 0;
    }
    return out->is_ordered ? 0
                           : convert(state, function, "None, or -1 for no synchronisation",
                                     value, &out->stream);
}
