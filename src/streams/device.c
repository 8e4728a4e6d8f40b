/* device.c: the Device type, one Metal device as Python sees it.
 *
 * Owns:    nothing: a Device points at a record that lives as long as the process.
 * Calls:   devices.h, metal_bridge.h.
 * Threads: the GIL is held.
 */
#include "streams/device.h"

#include "python/args.h"
#include "python/errors.h"

/* ---- the tuple of devices ---- */

static PyObject *
make_device(md_state *state, const device_record *record)
{
    PyObject *op = state->device_type->tp_alloc(state->device_type, 0);
    if (op != NULL) {
        ((DeviceObject *)op)->record = record;
    }
    return op;
}

int
device_count(md_state *state, const char *function)
{
    int count;
    Py_BEGIN_ALLOW_THREADS
    count = devices_count();
    Py_END_ALLOW_THREADS
    return count == 0 ? errors_check_fork(state, function) : count;
}

/* Borrowed from the state. */
PyObject *
device_all(md_state *state)
{
    if (state->devices != NULL) {
        return state->devices;
    }
    int count = device_count(state, "devices");
    if (count < 0) {
        return NULL;
    }
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        PyObject *device = make_device(state, devices_get(i));
        if (device == NULL) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SET_ITEM(tuple, i, device);
    }
    if (state->devices == NULL) { /* another thread can have been faster */
        state->devices = tuple;
    }
    else {
        Py_DECREF(tuple);
    }
    return state->devices;
}

PyObject *
device_of_record(md_state *state, const device_record *record)
{
    PyObject *tuple = device_all(state);
    return tuple == NULL ? NULL : Py_NewRef(PyTuple_GET_ITEM(tuple, record->index));
}

/* ---- from what a caller gives ---- */

const device_record *
device_default_record(md_state *state, const char *function)
{
    if (devices_count() > 0) {
        return devices_get(0);
    }
    if (errors_check_fork(state, function) == 0) {
        PyErr_SetString(state->metal_error, "No Metal device is available on this machine.");
    }
    return NULL;
}

static const device_record *
record_from_name(md_state *state, const char *function, PyObject *value)
{
    const char *name;
    if (args_text(function, "device", value, &name) < 0) {
        return NULL;
    }
    if (strcmp(name, "metal") == 0) {
        return device_default_record(state, function);
    }
    int count = device_count(state, function);
    if (count < 0) {
        return NULL;
    }
    char *end = NULL;
    long index = strncmp(name, "metal:", 6) == 0 ? strtol(name + 6, &end, 10) : -1;
    if (end == NULL || end == name + 6 || *end != '\0' || index < 0 || index >= count) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: there is no device %R; this machine has %d, called 'metal:0' and so on.",
            function, value, count);
        return NULL;
    }
    return devices_get((int)index);
}

const device_record *
device_convert(md_state *state, const char *function, PyObject *value)
{
    if (value == NULL || value == Py_None) {
        return device_default_record(state, function);
    }
    if (Py_IS_TYPE(value, state->device_type)) {
        return device_record_of(value);
    }
    if (PyUnicode_Check(value)) {
        return record_from_name(state, function, value);
    }
    PyErr_Format(PyExc_TypeError,
                 "%s: device must be a Device, a name such as 'metal:0', or None, not %.100s.",
                 function, Py_TYPE(value)->tp_name);
    return NULL;
}
