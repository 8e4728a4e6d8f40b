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

/* What a name ends with: nothing, which is 0, or ":" and a number.  -1: neither. */
static long
parse_index(const char *suffix)
{
    if (suffix[0] == '\0') {
        return 0;
    }
    if (suffix[0] != ':' || suffix[1] < '0' || suffix[1] > '9') {
        return -1;
    }
    char *end;
    long index = strtol(suffix + 1, &end, 10);
    return *end == '\0' ? index : -1;
}

/* The index that a name ends with, behind the name that Metal has here or in torch.  -1: it is
 * neither. */
static long
index_in_name(const char *name)
{
    static const char *const kinds[] = {"metal", "mps"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i]);
        if (strncmp(name, kinds[i], length) == 0) {
            return parse_index(name + length);
        }
    }
    return -1;
}

static const device_record *
record_from_name(md_state *state, const char *function, PyObject *value)
{
    const char *name;
    if (args_text(function, "device", value, &name) < 0) {
        return NULL;
    }
    long index = index_in_name(name);
    if (index == 0) {
        return device_default_record(state, function);
    }
    int count = device_count(state, function);
    if (count < 0) {
        return NULL;
    }
    if (index > 0 && index < count) {
        return devices_get((int)index);
    }
    if (strncmp(name, "cpu", 3) == 0) {
        PyErr_Format(PyExc_ValueError,
                     "%s: %R is not a Metal device, and an Array lies in a Metal buffer; "
                     "leave device out, and use the same memory on the CPU: np.asarray(a), "
                     "a.host.",
                     function, value);
    }
    else {
        PyErr_Format(
            PyExc_ValueError,
            "%s: there is no device %R; this machine has %d, called 'metal:0' and so on.",
            function, value, count);
    }
    return NULL;
}

/* It prints itself as a name. */
static bool
is_torch_device(PyObject *value)
{
    return strcmp(Py_TYPE(value)->tp_name, "torch.device") == 0;
}

const device_record *
device_convert(md_state *state, const char *function, PyObject *value)
{
    if (!args_is_given(value)) {
        return device_default_record(state, function);
    }
    if (Py_IS_TYPE(value, state->device_type)) {
        return device_record_of(value);
    }
    if (PyUnicode_Check(value)) {
        return record_from_name(state, function, value);
    }
    if (is_torch_device(value)) {
        PyObject *name = PyObject_Str(value);
        const device_record *record =
            name == NULL ? NULL : record_from_name(state, function, name);
        Py_XDECREF(name);
        return record;
    }
    PyErr_Format(PyExc_TypeError,
                 "%s: device must be a Device, a name such as 'metal:0', or None, not %.100s.",
                 function, Py_TYPE(value)->tp_name);
    return NULL;
}
