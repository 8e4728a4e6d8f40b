/* stream_current.c: which stream is current: the innermost `with stream:` of the thread, or
 * the device's.
 *
 * Owns:    a tuple in each context, of the streams entered there: each thread has a context of
 *          its own, and each asyncio task.
 * Calls:   stream.h for the device's own.
 * Threads: the GIL is held.
 */
#include "streams/stream_current.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/device.h"

/* ---- the device's own ---- */

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
    metal_stream *stream = stream_default(device);
    if (stream == NULL) { /* unreached: no test makes it fail here */
        (void)errors_from_bridge(state, "Device.default_stream", stream_default_status(), NULL,
                                 0);
        goto done;
    }
    stream_retain(stream);
    found = stream_wrap(state, stream);
    if (found != NULL && PyDict_SetItem(state->default_streams, key, found) < 0) {
        Py_CLEAR(found);
    }

done:
    Py_XDECREF(key);
    return found;
}

/* ---- with stream: ---- */

/* The streams that this context has entered, the innermost last: borrowed from the context,
 * NULL without an exception where there are none. */
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

/* The index of the innermost stream; -1: none.  None stands for a stream that was left while
 * memory was short. */
static Py_ssize_t
innermost_of(PyObject *tuple)
{
    Py_ssize_t at = tuple == NULL ? -1 : PyTuple_GET_SIZE(tuple) - 1;
    while (at >= 0 && PyTuple_GET_ITEM(tuple, at) == Py_None) {
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
    return state->entered_streams == NULL ? -1 : 0;
}

PyObject *
stream_entered(md_state *state)
{
    if (state->open_blocks == 0) { /* as a rule: one load instead of a look-up */
        return NULL;
    }
    PyObject *tuple = entered_tuple(state);
    Py_ssize_t at = innermost_of(tuple);
    return at < 0 ? NULL : PyTuple_GET_ITEM(tuple, at);
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
        PyTuple_SET_ITEM(longer, i, Py_NewRef(i < count ? PyTuple_GET_ITEM(tuple, i) : op));
    }
    int result = set_entered(state, longer);
    if (result == 0) {
        state->open_blocks++;
    }
    else if (longer != NULL) {
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
    if (at < 0 || PyTuple_GET_ITEM(tuple, at) != op) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Stream.__exit__: it is not the stream that this thread "
                        "(or asyncio task) entered last.");
        return NULL;
    }
    Py_INCREF(tuple); /* the context's reference goes */
    PyObject *shorter = PyTuple_GetSlice(tuple, 0, at);
    int result = set_entered(state, shorter);
    if (result < 0) {
        forget_stream(tuple, at);
    }
    Py_XDECREF(shorter);
    Py_DECREF(tuple);
    state->open_blocks--;
    return result < 0 ? NULL : Py_NewRef(Py_False);
}

PyDoc_STRVAR(
    current_stream_doc,
    "current_stream($module, device=None)\n--\n\n"
    "The stream that this thread, or asyncio task, works on.\n\n"
    "Parameters\n----------\n"
    "device : Device or str, optional\n"
    "    The device whose default stream is returned outside of `with stream:`.  Default:\n"
    "    the system's default device.\n\n"
    "Returns\n-------\n"
    "Stream\n"
    "    The innermost `with stream:` of the calling thread or task, else the device's default "
    "stream.\n\n"
    "A new thread starts without a current stream; a new task inherits that of its creator.\n\n"
    "Source: PEP 567.");

static PyObject *
core_current_stream(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames)
{
    static const args_spec spec = {"current_stream", 0, 1, 0, {"device", NULL}};
    md_state *state = state_of_module(module);
    PyObject *values[1];
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    PyObject *entered = stream_entered(state);
    if (entered != NULL) {
        return Py_NewRef(entered);
    }
    const device_record *device = device_convert(state, "current_stream", values[0]);
    return device == NULL ? NULL : stream_default_object(state, device);
}

PyMethodDef stream_functions[] = {
    {"current_stream", MD_FASTCALL(core_current_stream), current_stream_doc},
    {NULL, NULL, 0, NULL},
};
