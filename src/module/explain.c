/* explain.c: what explain() needs to know of a tensor, as a dict; metal_dlpack/explaining.py
 * judges.
 *
 * Calls:   foreign_tensor.h to look, and for what is wrong with it.
 * Threads: the GIL is held.
 * Rule:    nothing is copied, taken or imported.
 */
#include "module/module.h"

#include "array/array.h"
#include "exchange/dlpack_export.h"
#include "exchange/foreign_tensor.h"
#include "exchange/host_memory.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "streams/device.h"
#include "values/layout_type_object.h"

/* (name in the list, sentence with its numbers, without a full stop): owned (+1). */
static PyObject *
reason_tuple(const dlpack_fault *reason)
{
    return Py_BuildValue("(ss)", dlpack_fault_name(reason), dlpack_fault_text(reason).text);
}

static int
put_metal(PyObject *facts, const foreign_tensor *seen)
{
    void *handle = seen->tensor->data;
    const device_record *device;
    dlpack_fault fault;
    bool is_sound = foreign_check_buffer(seen, NULL, &device, &fault);
    if (!is_sound && module_put(facts, "reason", reason_tuple(&fault)) < 0) {
        return -1;
    }
    if (!is_sound && fault.code == DLPACK_FAULT_HANDLE) {
        return 0;
    }
    PyObject *mode = PyUnicode_FromString(storage_mode_name(bridge_buffer_storage(handle)));
    if (module_put(facts, "storage", mode) < 0) {
        return -1;
    }
    return is_sound ? module_put(facts, "metal_index", PyLong_FromLong(device->index)) : 0;
}

/* Why CPU memory cannot be shared.  Without a device there is nobody to share it with. */
static int
put_cpu(PyObject *facts, const foreign_tensor *seen)
{
    const DLTensor *tensor = seen->tensor;
    const device_record *device = devices_count() > 0 ? devices_get(0) : NULL;
    dlpack_fault reason;
    host_items items = {.address = (char *)tensor->data + tensor->byte_offset,
                        .layout = &seen->facts.layout,
                        .dtype = tensor->dtype,
                        .is_padded = seen->facts.is_padded};
    return device != NULL && host_memory_reason(&items, device, &reason)
               ? module_put(facts, "reason", reason_tuple(&reason))
               : 0;
}

/* What the check found, or the fault. */
static int
put_checked(PyObject *facts, foreign_tensor *seen)
{
    dlpack_fault fault = {DLPACK_FAULT_NONE, 0, 0, 0};
    bool is_sound = foreign_check(seen, &fault);
    if (!is_sound && module_put(facts, "reason", reason_tuple(&fault)) < 0) {
        return -1;
    }
    if (!is_sound && fault.code < DLPACK_FAULT_DEVICE) {
        return 0;
    }
    const dlpack_facts *checked = &seen->facts;
    const strided_layout *layout = &checked->layout;
    const int64_t *strides = seen->tensor->strides;
    int64_t nbytes = checked->end_nbytes - checked->first_nbytes;
    if (module_put(facts, "nitems", PyLong_FromLongLong(checked->nitems)) < 0 ||
        module_put(facts, "itemsize", PyLong_FromLongLong(layout->itemsize)) < 0 ||
        module_put(facts, "alignment",
                   PyLong_FromLongLong(dtype_alignment(seen->tensor->dtype))) < 0 ||
        module_put(facts, "nbytes", PyLong_FromLongLong(nbytes)) < 0 ||
        module_put(facts, "shape", layout_tuple(seen->tensor->shape, layout->ndim)) < 0 ||
        module_put(facts, "steps", layout_tuple(layout->strides, layout->ndim)) < 0 ||
        /* unchanged: some consumers judge the strides of axes of extent 1 */
        module_put(facts, "strides",
                   strides == NULL ? Py_NewRef(Py_None) : layout_tuple(strides, layout->ndim)) <
            0) {
        return -1;
    }
    if (!is_sound || checked->nitems == 0) {
        return 0;
    }
    return seen->tensor->device.device_type == kDLMetal ? put_metal(facts, seen)
                                                        : put_cpu(facts, seen);
}

/* SPEC explain-true */
static PyObject *
describe(foreign_tensor *seen)
{
    typedef unsigned long long number;
    const DLTensor *tensor = seen->tensor;
    PyObject *facts, *version = !seen->is_versioned ? Py_NewRef(Py_None)
                                                    : Py_BuildValue("(II)", seen->version.major,
                                                                    seen->version.minor);
    if (tensor == NULL) {
        facts = Py_BuildValue("{s:N}", "version", version);
    }
    else {
        facts = Py_BuildValue("{s:N,s:(ii),s:(iii),s:N,s:K,s:K}", "version", version, "device",
                              (int)tensor->device.device_type, (int)tensor->device.device_id,
                              "dtype", (int)tensor->dtype.code, (int)tensor->dtype.bits,
                              (int)tensor->dtype.lanes, "address",
                              PyLong_FromVoidPtr(tensor->data), "byte_offset",
                              (number)tensor->byte_offset, "flags", (number)seen->flags);
    }
    if (facts != NULL && put_checked(facts, seen) < 0) {
        Py_CLEAR(facts);
    }
    return facts;
}

PyDoc_STRVAR(tensor_facts_doc,
             "_tensor_facts($module, x, keywords, /)\n--\n\n"
             "The tensor that x hands out, as a dict.\n\n"
             "keywords: a dict for __dlpack__; None: the way of from_dlpack, without a copy.");

ARGS_FUNCTION(core_tensor_facts, module, "explain", 2, 2, 2, "x", "keywords")
{
    foreign_tensor seen;
    int result;
    if (values[1] == Py_None || PyCapsule_CheckExact(values[0])) {
        result = foreign_open(state_of_module(module), function, values[0], NULL, &seen);
    }
    else {
        PyObject *method = PyObject_GetAttrString(values[0], "__dlpack__");
        PyObject *capsule =
            method == NULL ? NULL : PyObject_VectorcallDict(method, NULL, 0, values[1]);
        Py_XDECREF(method);
        result = foreign_open_answer(function, capsule, Py_TYPE(values[0])->tp_name, &seen);
    }
    if (result < 0) {
        return NULL;
    }
    PyObject *facts = describe(&seen);
    foreign_close(&seen);
    return facts;
}

PyDoc_STRVAR(
    export_reason_doc,
    "_export_reason($module, array, device_type, is_versioned, /)\n--\n\n"
    "Why a tensor of the Array's memory itself is refused, or a copy: (name, sentence).");

static PyObject *
core_export_reason(PyObject *module, PyObject *args)
{
    PyObject *array;
    int device_type, is_versioned;
    dlpack_fault reason;
    if (!PyArg_ParseTuple(args, "O!ip", state_of_module(module)->array_type, &array,
                          &device_type, &is_versioned)) {
        return NULL;
    }
    if (!dlpack_export_reason(array_cast(array), (DLDeviceType)device_type, is_versioned,
                              &reason)) {
        Py_RETURN_NONE;
    }
    return reason_tuple(&reason);
}

PyDoc_STRVAR(is_private_map_doc, "_is_private_map($module, address, /)\n--\n\n"
                                 "Is a file mapped there so that writes stay in this process?");

static PyObject *
core_is_private_map(PyObject *Py_UNUSED(module), PyObject *op)
{
    void *address = PyLong_AsVoidPtr(op);
    return PyErr_Occurred() != NULL
               ? NULL
               : PyBool_FromLong(bridge_map_at(address) == BRIDGE_PRIVATE_FILE);
}

PyMethodDef explain_functions[] = {
    {"_is_private_map", core_is_private_map, METH_O, is_private_map_doc},
    {"_export_reason", core_export_reason, METH_VARARGS, export_reason_doc},
    {"_tensor_facts", MD_FASTCALL(core_tensor_facts), tensor_facts_doc},
    {NULL, NULL, 0, NULL},
};
