/* stream_current.c: which stream is current: the innermost `with stream:` of the thread, or the device's.
 *
 * Owns:    a list in each thread's dict, keyed by the Stream type, of the streams it has entered.
 * Calls:   stream.h for the device's own.
 * Threads: the GIL is held.
 */
#include "args.h"
#include "device.h"
#include "errors.h"
#include "stream_type.h"

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
    if (stream == NULL) {
        (void)errors_from_bridge(state, "Device.default_stream", BRIDGE_NO_COMMAND, NULL, 0);
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

/* The streams that this thread has entered, the innermost last: borrowed; NULL without an exception
 * where it has entered none yet and `makes` is false. */
static PyObject *
entered_list(md_state *state, bool makes)
{
    PyObject *locals = PyThreadState_GetDict(); /* borrowed */
    PyObject *key = (PyObject *)state->stream_type;
    if (locals == NULL) {
        return makes ? PyErr_NoMemory() : NULL;
    }
    PyObject *list = PyDict_GetItemWithError(locals, key);
    if (list != NULL || !makes || PyErr_Occurred()) {
        return list;
    }
    list = PyList_New(0);
    if (list == NULL || PyDict_SetItem(locals, key, list) < 0) {
        Py_XDECREF(list);
        return NULL;
    }
    Py_DECREF(list); /* the dict has it */
    return list;
}

PyObject *
stream_entered(md_state *state)
{
    if (state->entered_streams == 0) { /* as a rule: one load instead of two dicts */
        return NULL;
    }
    PyObject *list = entered_list(state, false);
    Py_ssize_t count = list == NULL ? 0 : PyList_GET_SIZE(list);
    return count == 0 ? NULL : PyList_GET_ITEM(list, count - 1);
}

const char stream_enter_doc[] =
    "__enter__($self, /)\n--\n\n"
    "Make it the current stream of this thread.  Returns the Stream.";

PyObject *
stream_enter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *list = entered_list(state_of(op), true);
    if (list == NULL || PyList_Append(list, op) < 0) {
        return NULL;
    }
    state_of(op)->entered_streams++;
    return Py_NewRef(op);
}

const char stream_exit_doc[] =
    "__exit__($self, type, value, traceback, /)\n--\n\n"
    "Make the stream current that was before.  Waits for nothing.\n\n"
    "Raises\n------\n"
    "RuntimeError\n    This thread has entered another stream since, or never this one.";

PyObject *
stream_exit(PyObject *op, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs),
            PyObject *Py_UNUSED(kwnames))
{
    PyObject *list = entered_list(state_of(op), true);
    if (list == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count == 0 || PyList_GET_ITEM(list, count - 1) != op) {
        PyErr_SetString(PyExc_RuntimeError, "Stream.__exit__: it is not the stream that this thread "
                                            "entered last.");
        return NULL;
    }
    if (PyList_SetSlice(list, count - 1, count, NULL) < 0) {
        return NULL;
    }
    state_of(op)->entered_streams--;
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(current_stream_doc,
             "current_stream($module, device=None)\n--\n\n"
             "The stream that this thread works on.\n\n"
             "Parameters\n----------\n"
             "device : Device or str, optional\n"
             "    Whose default stream is meant where there is no `with stream:`; default: the system's\n"
             "    default device.\n\n"
             "Returns\n-------\n"
             "Stream\n"
             "    The innermost `with stream:` of the calling thread, else the device's default stream.");

static PyObject *
core_current_stream(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
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
