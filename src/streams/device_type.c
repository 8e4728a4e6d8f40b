/* device_type.c: the Device type, one Metal device as Python sees it.
 *
 * Threads: the GIL is held.
 */
#include "streams/device.h"

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"
#include "streams/stream_current.h"
#include "streams/stream_type.h"

/* ---- the type ---- */

static PyObject *
device_get_name(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(device_record_of(op)->facts.name);
}

static PyObject *
device_get_index(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(device_record_of(op)->index);
}

static PyObject *
device_get_registry_id(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(device_record_of(op)->facts.registry_id);
}

static PyObject *
device_get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(device_record_of(op)->handle);
}

static PyObject *
device_get_has_unified_memory(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(device_record_of(op)->facts.has_unified_memory);
}

static PyObject *
device_get_max_buffer_length(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(device_record_of(op)->facts.max_buffer_length);
}

static PyObject *
device_get_recommended_max_working_set_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(device_record_of(op)->facts.recommended_max_working_set);
}

static PyObject *
device_get_current_allocated_size(PyObject *op, void *Py_UNUSED(closure))
{
    if (errors_check_fork(state_of(op), "Device.current_allocated_size") < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(
        bridge_device_allocated_nbytes(device_record_of(op)->handle));
}

static PyObject *
device_get_is_software(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(device_record_of(op)->facts.is_software);
}

static PyObject *
device_get_default_stream(PyObject *op, void *Py_UNUSED(closure))
{
    return stream_default_object(state_of(op), device_record_of(op));
}

static PyGetSetDef device_getset[] = {
    {"name", device_get_name, NULL, PyDoc_STR("Metal's name of the device, a str."), NULL},
    {"index", device_get_index, NULL,
     PyDoc_STR("Its index in devices(); 0 is the system's default."), NULL},
    {"registry_id", device_get_registry_id, NULL,
     PyDoc_STR("The GPU's registry ID, an int: the same in every process."), NULL},
    {"handle", device_get_handle, NULL,
     PyDoc_STR("The id<MTLDevice> as an int; borrowed, valid as long as the process."), NULL},
    {"has_unified_memory", device_get_has_unified_memory, NULL,
     PyDoc_STR("True where CPU and GPU use one memory (Apple silicon)."), NULL},
    {"max_buffer_length", device_get_max_buffer_length, NULL,
     PyDoc_STR("The longest buffer the device makes, in bytes."), NULL},
    {"recommended_max_working_set_size", device_get_recommended_max_working_set_size, NULL,
     PyDoc_STR("How many bytes the device can hold before it slows down, as Metal says."),
     NULL},
    {"current_allocated_size", device_get_current_allocated_size, NULL,
     PyDoc_STR("Bytes this process has allocated on the device now, by any library."), NULL},
    {"default_stream", device_get_default_stream, NULL,
     PyDoc_STR("The Stream of the library's own queue, the same object at every access."),
     NULL},
    {"is_software", device_get_is_software, NULL,
     PyDoc_STR("True for the software Metal that stands in where there is no Metal."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
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

/* Of the name, which the device equals. */
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
    if (stream_synchronize_device(state_of(op), "Device.synchronize", device_record_of(op)) <
        0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef device_methods[] = {
    {"synchronize", device_synchronize, METH_NOARGS, device_synchronize_doc},
    {"__reduce__", device_reduce, METH_NOARGS,
     PyDoc_STR("__reduce__($self, /)\n--\n\nPickle as the device of the same index.")},
    CALL_PYTHON_REPR_HTML,
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
    /* mutant survives (dropped call): only debug builds of CPython warn */
    PyObject_GC_UnTrack(op);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(device_doc,
             "A Metal device: one of devices().\n\n"
             "There is one object per device.  str(device) is its name for `device=`\n"
             "arguments, 'metal:0'; the device equals that str, and has the same hash.");

static PyType_Slot device_slots[] = {
    {Py_tp_doc, (void *)device_doc},   {Py_tp_dealloc, device_dealloc},
    {Py_tp_traverse, device_traverse}, {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},   {Py_tp_repr, device_repr},
    {Py_tp_str, device_str},           {Py_tp_richcompare, device_richcompare},
    {Py_tp_hash, device_hash},         {0, NULL},
};

PyType_Spec device_spec = {
    .name = "metal_dlpack.Device",
    .basicsize = sizeof(DeviceObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = device_slots,
};

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

PyMethodDef device_functions[] = {
    {"devices", core_devices, METH_NOARGS, devices_doc},
    {"default_device", core_default_device, METH_NOARGS, default_device_doc},
    {"_device", core_device, METH_O,
     PyDoc_STR("_device($module, index, /)\n--\n\nThe Device of an index, for pickle.")},
    {NULL, NULL, 0, NULL},
};
