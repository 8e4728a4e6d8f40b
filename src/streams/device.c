/* device.c: the Device type, one Metal device as Python sees it.
 *
 * Owns:    nothing: a Device points at a record that lives as long as the process.
 * Calls:   devices.h, metal_bridge.h.
 * Threads: the GIL is held.
 */
#include "streams/device.h"

#include "python/args.h"
#include "python/errors.h"
#include "streams/stream_type.h"

typedef struct {
    PyObject_HEAD
    const device_record *record; /* borrowed for ever */
} DeviceObject;

static inline const device_record *
record_of(PyObject *op)
{
    return ((DeviceObject *)op)->record;
}

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

/* Borrowed from the state. */
static PyObject *
all_devices(md_state *state)
{
    if (state->devices != NULL) {
        return state->devices;
    }
    int count;
    Py_BEGIN_ALLOW_THREADS
    count = devices_count();
    Py_END_ALLOW_THREADS
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
    PyObject *tuple = all_devices(state);
    return tuple == NULL ? NULL : Py_NewRef(PyTuple_GET_ITEM(tuple, record->index));
}

/* ---- from what a caller gives ---- */

static const device_record *
default_record(md_state *state)
{
    if (devices_count() == 0) {
        PyErr_SetString(state->metal_error, "No Metal device is available on this machine.");
        return NULL;
    }
    return devices_get(0);
}

static const device_record *
record_from_name(md_state *state, const char *function, PyObject *value)
{
    const char *name = PyUnicode_AsUTF8(value);
    if (name == NULL) {
        return NULL;
    }
    if (strcmp(name, "metal") == 0) {
        return default_record(state);
    }
    char *end = NULL;
    long index = strncmp(name, "metal:", 6) == 0 ? strtol(name + 6, &end, 10) : -1;
    if (end == NULL || end == name + 6 || *end != '\0' || index < 0 || index >= devices_count()) {
        PyErr_Format(PyExc_ValueError,
                     "%s: there is no device %R; this machine has %d, called 'metal:0' and so on.",
                     function, value, devices_count());
        return NULL;
    }
    return devices_get((int)index);
}

const device_record *
device_convert(md_state *state, const char *function, PyObject *value)
{
    if (value == NULL || value == Py_None) {
        return default_record(state);
    }
    if (Py_IS_TYPE(value, state->device_type)) {
        return record_of(value);
    }
    if (PyUnicode_Check(value)) {
        return record_from_name(state, function, value);
    }
    PyErr_Format(PyExc_TypeError,
                 "%s: device must be a Device, a name such as 'metal:0', or None, not %.100s.",
                 function, Py_TYPE(value)->tp_name);
    return NULL;
}

/* ---- the type ---- */

static PyObject *
device_get_name(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(record_of(op)->facts.name);
}

static PyObject *
device_get_index(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(record_of(op)->index);
}

static PyObject *
device_get_registry_id(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(record_of(op)->facts.registry_id);
}

static PyObject *
device_get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(record_of(op)->handle);
}

static PyObject *
device_get_has_unified_memory(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(record_of(op)->facts.has_unified_memory);
}

static PyObject *
device_get_max_buffer_length(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(record_of(op)->facts.max_buffer_length);
}

static PyObject *
device_get_recommended_max_working_set_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(record_of(op)->facts.recommended_max_working_set);
}

static PyObject *
device_get_current_allocated_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(bridge_device_allocated_nbytes(record_of(op)->handle));
}

static PyObject *
device_get_is_software(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(record_of(op)->facts.is_software);
}

static PyObject *
device_get_default_stream(PyObject *op, void *Py_UNUSED(closure))
{
    return stream_default_object(state_of(op), record_of(op));
}

static PyGetSetDef device_getset[] = {
    {"name", device_get_name, NULL, PyDoc_STR("Metal's name of the device, a str."), NULL},
    {"index", device_get_index, NULL,
     PyDoc_STR("Its place in devices(): 0 is the system's default."), NULL},
    {"registry_id", device_get_registry_id, NULL,
     PyDoc_STR("The number that names the GPU for every process, an int."), NULL},
    {"handle", device_get_handle, NULL,
     PyDoc_STR("The id<MTLDevice> as an int; borrowed, valid as long as the process."), NULL},
    {"has_unified_memory", device_get_has_unified_memory, NULL,
     PyDoc_STR("True where CPU and GPU use one memory (Apple silicon)."), NULL},
    {"max_buffer_length", device_get_max_buffer_length, NULL,
     PyDoc_STR("The longest buffer the device makes, in bytes."), NULL},
    {"recommended_max_working_set_size", device_get_recommended_max_working_set_size, NULL,
     PyDoc_STR("How many bytes the device can hold before it slows down, as Metal says."), NULL},
    {"current_allocated_size", device_get_current_allocated_size, NULL,
     PyDoc_STR("Bytes this process has allocated on the device now, by any library."), NULL},
    {"default_stream", device_get_default_stream, NULL,
     PyDoc_STR("The Stream of the library's own queue, the same object at every access."), NULL},
    {"is_software", device_get_is_software, NULL,
     PyDoc_STR("True for the software Metal that stands in where there is no Metal."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *
device_repr(PyObject *op)
{
    const device_record *record = record_of(op);
    return PyUnicode_FromFormat("<metal_dlpack.Device metal:%d '%s'>", record->index,
                                record->facts.name);
}

static PyObject *
device_str(PyObject *op)
{
    return PyUnicode_FromFormat("metal:%d", record_of(op)->index);
}

static PyObject *
device_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *module = PyImport_ImportModule("metal_dlpack._core");
    if (module == NULL) {
        return NULL;
    }
    PyObject *find = PyObject_GetAttrString(module, "_device");
    Py_DECREF(module);
    return find == NULL ? NULL : Py_BuildValue("N(i)", find, record_of(op)->index);
}

PyDoc_STRVAR(device_synchronize_doc,
             "synchronize($self, /)\n--\n\n"
             "Block until the work of every Stream of the device is done.\n\n"
             "Raises\n------\n"
             "MetalError\n    Some of it failed and nobody was told yet.\n\n"
             "Threads: the GIL is released; Ctrl-C is heard.  Queues that no Stream stands for are not\n"
             "waited for.");

static PyObject *
device_synchronize(PyObject *op, PyObject *Py_UNUSED(unused))
{
    if (stream_synchronize_device(state_of(op), "Device.synchronize", record_of(op)) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef device_methods[] = {
    {"synchronize", device_synchronize, METH_NOARGS, device_synchronize_doc},
    {"__reduce__", device_reduce, METH_NOARGS,
     PyDoc_STR("__reduce__($self, /)\n--\n\nPickle as the device of the same index.")},
    {NULL, NULL, 0, NULL},
};

static int
device_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return 0;
}

static void
device_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(device_doc, "A Metal device: one of devices().\n\n"
                         "There is one object a device, so `is` compares them.  str(device) is its\n"
                         "name for `device=` arguments, 'metal:0'.");

static PyType_Slot device_slots[] = {
    {Py_tp_doc, (void *)device_doc},       {Py_tp_dealloc, device_dealloc},
    {Py_tp_traverse, device_traverse},     {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},       {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},               {0, NULL},
};

PyType_Spec device_spec = {
    .name = "metal_dlpack.Device",
    .basicsize = sizeof(DeviceObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = device_slots,
};

/* ---- functions of the module ---- */

PyDoc_STRVAR(devices_doc, "devices()\n--\n\n"
                          "Every Metal device of the machine, the system's default first.\n\n"
                          "Returns\n-------\n"
                          "tuple of Device\n"
                          "    The same objects at every call; empty where there is no Metal.\n\n"
                          "Source: MTLCreateSystemDefaultDevice, MTLCopyAllDevices.");

static PyObject *
core_devices(PyObject *module, PyObject *Py_UNUSED(unused))
{
    PyObject *tuple = all_devices(state_of_module(module));
    return tuple == NULL ? NULL : Py_NewRef(tuple);
}

PyDoc_STRVAR(default_device_doc, "default_device()\n--\n\n"
                                 "The device used where none is named.\n\n"
                                 "Returns\n-------\nDevice\n\n"
                                 "Raises\n------\nMetalError\n"
                                 "    The machine has no Metal device.");

static PyObject *
core_default_device(PyObject *module, PyObject *Py_UNUSED(unused))
{
    md_state *state = state_of_module(module);
    const device_record *record = default_record(state);
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
    if (number < 0 || number >= devices_count()) {
        return PyErr_Format(PyExc_ValueError,
                            "A Device with index %lld was pickled; this machine has %d.",
                            (long long)number, devices_count());
    }
    return device_of_record(state, devices_get((int)number));
}

PyMethodDef device_functions[] = {
    {"devices", core_devices, METH_NOARGS, devices_doc},
    {"default_device", core_default_device, METH_NOARGS, default_device_doc},
    {"_device", core_device, METH_O,
     PyDoc_STR("_device($module, index, /)\n--\n\nThe Device of an index, for pickle.")},
    {NULL, NULL, 0, NULL},
};
