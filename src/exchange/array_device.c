/* array_device.c: Array.to_device, the array API standard's way to another device.
 *
 * Calls:   dlpack_import.h, which copies between devices and orders GPU work; array_get_host
 *          for the CPU.
 * Threads: the GIL is held; released while waiting and copying.
 * Source:  array API standard 2025.12, array.to_device.
 */
#include "array/array.h"
#include "array/array_methods.h"
#include "exchange/dlpack_import.h"
#include "exchange/dlpack_producer.h"
#include "python/args.h"
#include "streams/device.h"
#include "streams/wait_rule.h"

static const char function[] = "Array.to_device";

/* The device that a pair names, or NULL with `*is_cpu`; NULL without it: an exception. */
static const device_record *
convert_pair(PyObject *value, bool *is_cpu)
{
    int64_t pair[2];
    int count;
    if (args_int64s(function, "device", value, pair, 2, &count) < 0) {
        return NULL;
    }
    if (count == 2 && pair[0] == kDLMetal && pair[1] >= 0 && pair[1] < devices_count()) {
        return devices_get((int)pair[1]);
    }
    *is_cpu = count == 2 && pair[0] == kDLCPU && pair[1] == 0;
    if (!*is_cpu) {
        PyErr_Format(PyExc_ValueError,
                     "%s: device %R is neither a Metal device of devices() (8, index) nor the "
                     "CPU (1, 0).",
                     function, value);
    }
    return NULL;
}

static const device_record *
convert_place(md_state *state, PyObject *value, bool *is_cpu)
{
    *is_cpu = producer_is_cpu_name(value);
    if (*is_cpu) {
        return NULL;
    }
    if (PyTuple_Check(value)) {
        return convert_pair(value, is_cpu);
    }
    if (value == Py_None) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: device must be a Device, a name such as 'metal:0' or 'cpu', or a pair as "
            "__dlpack_device__ returns it, not None.",
            function);
        return NULL;
    }
    return device_convert(state, function, value);
}

/* Copy private storage, which has no address, to shared storage first. */
static PyObject *
to_cpu(ArrayObject *self)
{
    if (array_storage(self)->mode != BRIDGE_PRIVATE) {
        return array_get_host((PyObject *)self, NULL);
    }
    PyObject *copy = array_copied(self, 'C', BRIDGE_SHARED);
    PyObject *host = copy == NULL ? NULL : array_get_host(copy, NULL);
    Py_XDECREF(copy);
    return host;
}

const char array_doc_to_device[] =
    "to_device($self, /, device, stream=None)\n--\n\n"
    "This array on another device.\n\n"
    "Parameters\n----------\n"
    "device : Device, 'metal', 'metal:0', 'cpu', or a pair as __dlpack_device__ returns it\n"
    "stream : Stream or int, optional\n"
    "    A Stream, or the handle of its command queue: the array is used there next, and the "
    "queue waits on the\n"
    "    GPU for work that is in flight.  None and -1: every user of the array waits, as\n"
    "    usual.\n\n"
    "Returns\n-------\n"
    "Array or HostView\n"
    "    Of the same device: this array itself.  Of another Metal device: a copy in C order, "
    "in the same storage\n"
    "    mode.  'cpu': the host view of the same memory; of private storage, of a shared "
    "copy.\n\n"
    "Raises\n------\n"
    "ValueError\n    There is no such device.\n"
    "TypeError\n    device or stream has a wrong type.\n"
    "BufferError\n    stream is an int that is not the handle of a known queue.\n"
    "MemoryError\n    Metal has no memory left for the copy.\n\n"
    "Threads: the GIL is released while waiting and copying.\n\n"
    "Source: array API standard 2025.12, array.to_device.";

PyObject *
array_method_to_device(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"Array.to_device", 0, 2, 1, {"device", "stream", NULL}};
    md_state *state = state_of(op);
    PyObject *values[2], *result = NULL;
    import_request request = {.copy = -1};
    bool is_cpu = false;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    request.device = convert_place(state, values[0], &is_cpu);
    if ((request.device == NULL && !is_cpu) ||
        stream_convert_order(state, function, values[1], &request.order) < 0) {
        return NULL;
    }
    metal_storage *storage = array_storage(array_cast(op));
    bool is_here = is_cpu || request.device == storage->device;
    if (!is_here) {
        result = dlpack_import_array(op, &request);
    }
    else if (request.order.stream == NULL ||
             wait_rule_for_gpu(state, function, storage, &request.order) == 0) {
        result = is_cpu ? to_cpu(array_cast(op)) : Py_NewRef(op);
    }
    stream_release(request.order.stream);
    return result;
}
