/* stream_torch.c: see stream_torch.h.  Three private functions, which sync.py puts together. */
#include "exchange/stream_torch.h"

#include "array/array.h"
#include "exchange/torch_queue.h"
#include "metal/work.h"
#include "python/errors.h"
#include "streams/device.h"
#include "streams/event_type.h"

PyDoc_STRVAR(
    torch_open_doc,
    "_torch_open($module, library, /)\n--\n\n"
    "Look for torch's queue in its loaded library.  True: the two functions below work.");

static PyObject *
core_torch_open(PyObject *Py_UNUSED(module), PyObject *library)
{
    PyObject *path;
    if (!PyUnicode_FSConverter(library, &path)) {
        return NULL;
    }
    bool is_found = queue_torch_open(PyBytes_AS_STRING(path));
    Py_DECREF(path);
    return PyBool_FromLong(is_found);
}

PyDoc_STRVAR(torch_signal_doc,
             "_torch_signal($module, /)\n--\n\n"
             "The moment when all that torch was given on MPS so far is done, as an Event.");

static PyObject *
core_torch_signal(PyObject *module, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of_module(module);
    const device_record *device = device_convert(state, "from_dlpack", NULL);
    PyObject *op = device == NULL ? NULL : event_new_object(state);
    if (op == NULL) {
        return NULL;
    }
    bridge_status status;
    Py_BEGIN_ALLOW_THREADS
    status = queue_torch_signal(device, &event_cast(op)->event, &event_cast(op)->value);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        Py_DECREF(op);
        return errors_from_bridge(state, "torch's queue", status, NULL, 0);
    }
    return op;
}

PyDoc_STRVAR(
    torch_wait_doc,
    "_torch_wait($module, array, /)\n--\n\n"
    "What torch encodes from now on waits, on the GPU, for our work in flight on an Array.");

static PyObject *
core_torch_wait(PyObject *module, PyObject *op)
{
    md_state *state = state_of_module(module);
    if (!Py_IS_TYPE(op, state->array_type)) {
        return PyErr_Format(PyExc_TypeError, "_torch_wait: %.100s is not an Array.",
                            Py_TYPE(op)->tp_name);
    }
    metal_storage *storage = array_storage(array_cast(op));
    metal_stream *stream = stream_default(storage->device);
    stream_mark mark = {0};
    bridge_status status = stream_default_status();
    Py_BEGIN_ALLOW_THREADS
    if (stream != NULL) {
        status = work_mark_storage(stream, storage, &mark);
    }
    if (status == BRIDGE_OK && mark.value > 0) {
        status = queue_torch_wait(mark.stream->event, mark.value);
    }
    stream_release(mark.stream);
    Py_END_ALLOW_THREADS
    if (status != BRIDGE_OK) {
        return errors_from_bridge(state, "torch's queue", status, NULL, 0);
    }
    Py_RETURN_NONE;
}

PyMethodDef stream_torch_functions[] = {
    {"_torch_open", core_torch_open, METH_O, torch_open_doc},
    {"_torch_signal", core_torch_signal, METH_NOARGS, torch_signal_doc},
    {"_torch_wait", core_torch_wait, METH_O, torch_wait_doc},
    {NULL, NULL, 0, NULL},
};
