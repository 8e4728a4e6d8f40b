/* explain.c: what explain() needs to know of a tensor, as a dict; metal_dlpack/explaining.py
 * judges.
 *
 * Calls:   seen_tensor.h to look, dlpack_check.h and the bridge for what is wrong with it.
 * Threads: the GIL is held.
 * Rule:    nothing is copied, taken or imported.
 */
#include "module/explain.h"

#include "array/array.h"
#include "module/seen_tensor.h"
#include "python/args.h"
#include "python/errors.h"
#include "streams/device.h"
#include "values/layout_type_object.h"

static PyObject *
text_of_fault(const dlpack_fault *fault)
{
    char text[LAYOUT_TEXT_MAX];
    dlpack_write_fault(fault, text);
    return PyUnicode_FromFormat("%s.", text);
}

/* Puts `value`, which it steals, into the dict. */
static int
put(PyObject *facts, const char *name, PyObject *value)
{
    int result = value == NULL ? -1 : PyDict_SetItemString(facts, name, value);
    Py_XDECREF(value);
    return result;
}

static int
put_metal(PyObject *facts, const seen_tensor *seen, const dlpack_facts *checked)
{
    static const char *const modes[] = {"shared", "managed", "private"};
    const DLTensor *tensor = seen->tensor;
    dlpack_fault fault;
    if (!bridge_handle_is_buffer(tensor->data)) {
        return put(facts, "fault", PyUnicode_FromString("data is not an id<MTLBuffer>."));
    }
    bridge_buffer *handle = tensor->data;
    if (put(facts, "storage", PyUnicode_FromString(modes[bridge_buffer_storage(handle)])) < 0) {
        return -1;
    }
    if (!dlpack_check_offset(tensor, checked, &fault) ||
        !dlpack_check_bounds(tensor, checked, bridge_buffer_nbytes(handle), &fault)) {
        return put(facts, "fault", text_of_fault(&fault));
    }
    const device_record *device = devices_find(bridge_buffer_device(handle));
    int32_t id = tensor->device.device_id;
    if (device == NULL || (id != 0 && id != device->index)) {
        return put(facts, "fault",
                   PyUnicode_FromFormat("The device_id (%d) is not that of the MTLBuffer.",
                                        (int)id));
    }
    return put(facts, "metal_index", PyLong_FromLong(device->index));
}

/* What dlpack_check found, or the fault. */
static int
put_checked(PyObject *facts, const seen_tensor *seen)
{
    dlpack_facts checked;
    if (seen_check("explain", seen, &checked) < 0) {
        return put(facts, "fault", errors_take_text());
    }
    const strided_layout *layout = &checked.layout;
    if (put(facts, "nitems", PyLong_FromLongLong(checked.nitems)) < 0 ||
        put(facts, "itemsize", PyLong_FromLongLong(layout->itemsize)) < 0 ||
        put(facts, "alignment", PyLong_FromLongLong(dtype_alignment(seen->tensor->dtype))) <
            0 ||
        put(facts, "nbytes", PyLong_FromLongLong(checked.end_nbytes - checked.first_nbytes)) <
            0 ||
        put(facts, "shape", layout_tuple(seen->tensor->shape, layout->ndim)) < 0 ||
        put(facts, "steps", layout_tuple(layout->strides, layout->ndim)) < 0) {
        return -1;
    }
    /* unchanged: some consumers judge the strides of axes of extent 1 */
    const int64_t *strides = seen->tensor->strides;
    if (put(facts, "strides",
            strides == NULL ? Py_NewRef(Py_None) : layout_tuple(strides, layout->ndim)) < 0) {
        return -1;
    }
    bool is_metal = seen->tensor->device.device_type == kDLMetal;
    return is_metal && checked.nitems > 0 ? put_metal(facts, seen, &checked) : 0;
}

/* SPEC explain-true */
static PyObject *
describe(const seen_tensor *seen)
{
    const DLTensor *tensor = seen->tensor;
    PyObject *facts = PyDict_New();
    PyObject *version = !seen->is_versioned
                            ? Py_NewRef(Py_None)
                            : Py_BuildValue("(II)", seen->version.major, seen->version.minor);
    if (facts == NULL) {
        Py_XDECREF(version);
        return NULL;
    }
    if (put(facts, "version", version) < 0) {
        goto error;
    }
    if (tensor == NULL) {
        return facts;
    }
    if (put(facts, "device",
            Py_BuildValue("(ii)", (int)tensor->device.device_type,
                          (int)tensor->device.device_id)) < 0 ||
        put(facts, "dtype",
            Py_BuildValue("(iii)", (int)tensor->dtype.code, (int)tensor->dtype.bits,
                          (int)tensor->dtype.lanes)) < 0 ||
        put(facts, "address", PyLong_FromVoidPtr(tensor->data)) < 0 ||
        put(facts, "byte_offset", PyLong_FromUnsignedLongLong(tensor->byte_offset)) < 0 ||
        put(facts, "flags", PyLong_FromUnsignedLongLong(seen->flags)) < 0 ||
        put_checked(facts, seen) < 0) {
        goto error;
    }
    return facts;

error:
    Py_XDECREF(facts);
    return NULL;
}

PyDoc_STRVAR(tensor_facts_doc,
             "_tensor_facts($module, x, keywords, /)\n--\n\n"
             "The tensor that x hands out, as a dict.\n\n"
             "keywords: a dict for __dlpack__; None: the way of from_dlpack, without a copy.");

static PyObject *
core_tensor_facts(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {"explain", 2, 2, 2, {"x", "keywords", NULL}};
    PyObject *values[2];
    seen_tensor seen;
    if (args_parse(&spec, args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    int result;
    if (PyCapsule_CheckExact(values[0])) {
        result = seen_open_capsule("explain", values[0], &seen);
    }
    else if (values[1] == Py_None) {
        result = seen_open(state_of_module(module), "explain", values[0], &seen);
    }
    else {
        result = seen_open_call("explain", values[0], values[1], &seen);
    }
    if (result < 0) {
        return NULL;
    }
    PyObject *facts = describe(&seen);
    seen_close(&seen);
    return facts;
}

PyMethodDef explain_functions[] = {
    {"_tensor_facts", MD_FASTCALL(core_tensor_facts), tensor_facts_doc},
    {NULL, NULL, 0, NULL},
};
