/* capture.c: begins and ends Metal's capture, for metal_dlpack/capturing.py.
 *
 * Calls:   metal_bridge.h.
 * Threads: the GIL is held; released while Metal begins and writes.
 */
#include "module/module.h"

#include <stdlib.h>

#include "python/errors.h"
#include "streams/device.h"

static PyObject *
capture_begin(PyObject *module, PyObject *args)
{
    md_state *state = state_of_module(module);
    const device_record *device;
    PyObject *target, *path;
    char *message;
    if (!PyArg_ParseTuple(args, "OO&", &target, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    device = device_convert(state, "capture", target);
    if (device == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    const char *text = PyBytes_AS_STRING(path);
    bridge_status status = WITHOUT_GIL(bridge_capture_begin(device->handle, text, &message));
    Py_DECREF(path);
    if (status == BRIDGE_NO_TRACE && message != NULL) {
        PyErr_Format(state->metal_error, "capture: %s: %s", bridge_status_text(status),
                     message);
        free(message);
        return NULL;
    }
    return errors_check_status(state, "capture", status, NULL, 0) < 0 ? NULL
                                                                      : Py_NewRef(Py_None);
}

static PyObject *
capture_end(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS;
    bridge_capture_end();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyMethodDef capture_functions[] = {
    {"_capture_begin", capture_begin, METH_VARARGS,
     PyDoc_STR("_capture_begin($module, device, path, /)\n--\n\n"
               "Metal writes what the device does into a trace, until _capture_end.")},
    {"_capture_end", capture_end, METH_NOARGS,
     PyDoc_STR("_capture_end($module, /)\n--\n\nEnd the capture, if one is on.")},
    {NULL, NULL, 0, NULL},
};
