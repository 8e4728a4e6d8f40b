/* device.c: the Device type, one Metal device as Python sees it.
 *
 * Owns:    nothing: a Device points at a record that lives as long as the process.
 * Calls:   devices.h, metal_bridge.h.
 * Threads: the GIL is held.
 */
#include "streams/device.h"

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/stream_object.h"

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

/* How many there are.  -1 with MetalError in such a child. */
static int
device_count(md_state *state, const char *function)
{
    int count = WITHOUT_GIL(devices_count());
    return count == 0 ? errors_check_fork(state, function) : count;
}

/* The tuple of Devices, the default first: borrowed from the state.  NULL with MetalError in a
 * forked child whose parent never asked for them. */
static PyObject *
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
    for (int i = 0; tuple != NULL && i < count; i++) {
        state_fill_tuple(&tuple, i, make_device(state, devices_get(i)));
    }
    if (tuple == NULL) {
        return NULL;
    }
    /* mutant survives (condition always): only if another thread is faster */
    if (state->devices == NULL) { /* another thread can have been faster */
        state->devices = Py_NewRef(tuple);
    }
    Py_DECREF(tuple);
    return state->devices;
}

PyObject *
device_of_record(md_state *state, const device_record *record)
{
    PyObject *tuple = device_all(state);
    return tuple == NULL ? NULL : Py_NewRef(PyTuple_GET_ITEM(tuple, record->index));
}

/* ---- from what a caller gives ---- */

/* NULL with MetalError where there is no Metal, or none in a forked child. */
static const device_record *
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

/* ---- the type ---- */

/* A getter for what the record says. */
#define DEVICE_FACT(name, value) \
    static PyObject *device_get_##name(PyObject *op, void *Py_UNUSED(closure)) \
    { \
        const device_record *record = device_record_of(op); \
        return value; \
    }
DEVICE_FACT(name, PyUnicode_FromString(record->facts.name))
DEVICE_FACT(index, PyLong_FromLong(record->index))
DEVICE_FACT(registry_id, PyLong_FromUnsignedLongLong(record->facts.registry_id))
DEVICE_FACT(handle, PyLong_FromVoidPtr(record->handle))
DEVICE_FACT(has_unified_memory, PyBool_FromLong(record->facts.has_unified_memory))
DEVICE_FACT(max_buffer_length, PyLong_FromUnsignedLongLong(record->facts.max_buffer_length))
DEVICE_FACT(recommended_max_working_set_size,
            PyLong_FromUnsignedLongLong(record->facts.recommended_max_working_set))
DEVICE_FACT(is_software, PyBool_FromLong(record->facts.is_software))
#undef DEVICE_FACT

static PyObject *
device_get_current_allocated_size(PyObject *op, void *Py_UNUSED(closure))
{
    if (errors_check_fork(state_of(op), "Device.current_allocated_size") < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        bridge_device_allocated_nbytes(device_record_of(op)->handle));
}

MD_GETTER(device_get_default_stream, stream_default_object(state_of(op), device_record_of(op)));

static PyGetSetDef device_getset[] = {
    MD_FACT(device, name, "Metal's name of the device, a str."),
    MD_FACT(device, index, "Its index in devices(); 0 is the system's default."),
    MD_FACT(device, registry_id, "The GPU's registry ID, an int: the same in every process."),
    MD_FACT(device, handle,
            "The id<MTLDevice> as an int; borrowed, valid as long as the process."),
    MD_FACT(device, has_unified_memory,
            "True where CPU and GPU use one memory (Apple silicon)."),
    MD_FACT(device, max_buffer_length, "The longest buffer the device makes, in bytes."),
    MD_FACT(device, recommended_max_working_set_size,
            "How many bytes the device can hold before it slows down, as Metal says."),
    MD_FACT(device, current_allocated_size,
            "Bytes this process has allocated on the device now, by any library."),
    MD_FACT(device, default_stream,
            "The Stream of the library's own queue, the same object at every access."),
    MD_FACT(device, is_software,
            "True for the software Metal that stands in where there is no Metal."),
    MD_LAST_FACT,
};

static PyObject *
device_repr(PyObject *op)
{
    const device_record *record = device_record_of(op);
    return PyUnicode_FromFormat("<metal_dlpack.Device metal:%d '%s'>", record->index,
                                record->facts.name);
}

static PyObject *
device_str(PyObject *op)
{
    return PyUnicode_FromFormat("metal:%d", device_record_of(op)->index);
}

static PyObject *
device_richcompare(PyObject *a, PyObject *b, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !(PyUnicode_Check(b) || Py_IS_TYPE(b, Py_TYPE(a)))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (!PyUnicode_Check(b)) {
        return PyBool_FromLong((a == b) == (op == Py_EQ));
    }
    PyObject *name = device_str(a);
    PyObject *answer = name == NULL ? NULL : PyUnicode_RichCompare(name, b, op);
    Py_XDECREF(name);
    return answer;
}

/* Hash the name, which the device equals. */
static Py_hash_t
device_hash(PyObject *op)
{
    PyObject *name = device_str(op);
    Py_hash_t hash = name == NULL ? -1 : PyObject_Hash(name);
    Py_XDECREF(name);
    return hash;
}

static PyObject *
device_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *find = call_python_find(CALL_DEVICE);
    return find == NULL ? NULL : Py_BuildValue("N(i)", find, device_record_of(op)->index);
}

PyDoc_STRVAR(
    device_synchronize_doc,
    "synchronize($self, /)\n--\n\n"
    "Block until the work of every Stream of the device is done.\n\n"
    "Raises\n------\n"
    "MetalError\n    Some of it failed, and no wait has raised the failure yet.\n\n"
    "Threads: the GIL is released; Ctrl-C ends the wait.  Queues without a Stream are not\n"
    "waited for.");

static PyObject *
device_synchronize(PyObject *op, PyObject *Py_UNUSED(unused))
{
    int result =
        stream_synchronize_device(state_of(op), "Device.synchronize", device_record_of(op));
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef device_methods[] = {
    {"synchronize", device_synchronize, METH_NOARGS, device_synchronize_doc},
    {"__reduce__", device_reduce, METH_NOARGS,
     PyDoc_STR("__reduce__($self, /)\n--\n\nPickle as the device of the same index.")},
    CALL_PYTHON_REPR_HTML,
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(device_doc,
             "A Metal device: one of devices().\n\n"
             "There is one object per device.  str(device) is its name for `device=`\n"
             "arguments, 'metal:0'; the device equals that str, and has the same hash.");

static PyType_Slot device_slots[] = {
    {Py_tp_doc, (void *)device_doc},
    {Py_tp_traverse, state_visit_type},
    {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},
    {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},
    {Py_tp_richcompare, device_richcompare},
    {Py_tp_hash, device_hash},
    {0, NULL},
};

MD_SPEC(device, "Device", sizeof(DeviceObject), 0, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* ---- functions of the module ---- */

PyDoc_STRVAR(devices_doc,
             "devices()\n--\n\n"
             "Every Metal device of the machine, the system's default first.\n\n"
             "Returns\n-------\n"
             "tuple of Device\n"
             "    The same objects at every call; empty where there is no Metal.\n\n"
             "Raises\n------\nMetalError\n"
             "    In a forked child whose parent has not used Metal.\n\n"
             "Source: MTLCreateSystemDefaultDevice, MTLCopyAllDevices.");

static PyObject *
core_devices(PyObject *module, PyObject *Py_UNUSED(unused))
{
    PyObject *tuple = device_all(state_of_module(module));
    return tuple == NULL ? NULL : Py_NewRef(tuple);
}

PyDoc_STRVAR(default_device_doc, "default_device()\n--\n\n"
                                 "The device that is used when none is named.\n\n"
                                 "Returns\n-------\nDevice\n\n"
                                 "Raises\n------\nMetalError\n"
                                 "    The machine has no Metal device, or this is a forked "
                                 "child whose parent\n    has not used Metal.");

static PyObject *
core_default_device(PyObject *module, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of_module(module);
    const device_record *record = device_default_record(state, "default_device");
    return record == NULL ? NULL : device_of_record(state, record);
}

static PyObject *
core_device(PyObject *module, PyObject *index)
{
    md_state *state = state_of_module(module);
    int64_t number;
    if (args_int64("_device", "index", index, &number) < 0) {
        return NULL;
    }
    int count = device_count(state, "_device");
    if (count < 0) {
        return NULL;
    }
    if (number < 0 || number >= count) { /* unreached: no test makes it fail here */
        return PyErr_Format(PyExc_ValueError,
                            "A Device with index %lld was pickled; this machine has %d.",
                            (long long)number, count);
    }
    return device_of_record(state, devices_get((int)number));
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

ARGS_FUNCTION(core_current_stream, module, "current_stream", 0, 1, 0, "device")
{
    md_state *state = state_of_module(module);
    PyObject *entered = stream_entered(state);
    if (entered != NULL) {
        return Py_NewRef(entered);
    }
    const device_record *device = device_convert(state, function, values[0]);
    return device == NULL ? NULL : stream_default_object(state, device);
}

PyMethodDef device_functions[] = {
    {"devices", core_devices, METH_NOARGS, devices_doc},
    {"default_device", core_default_device, METH_NOARGS, default_device_doc},
    {"current_stream", MD_FASTCALL(core_current_stream), current_stream_doc},
    {"_device", core_device, METH_O,
     PyDoc_STR("_device($module, index, /)\n--\n\nThe Device of an index, for pickle.")},
    {NULL, NULL, 0, NULL},
};
