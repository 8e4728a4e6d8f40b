/* exchange.c: see exchange.h.
 *
 * Source:  dlpack.h 1.3 DLPackExchangeAPI.
 */
#include "exchange.h"

#include <dlpack/dlpack.h>

/* The table of a type: borrowed, static for the process.  NULL with TypeError.  A library
 * keeps it per type; looking it up costs more than the call. */
static const DLPackExchangeAPI *
table_of(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        return PyErr_Format(PyExc_TypeError, "%R has no __dlpack_c_exchange_api__.", type),
               NULL;
    }
    const DLPackExchangeAPIHeader *header =
        PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    while (header != NULL && header->version.major != DLPACK_MAJOR_VERSION) {
        header = header->prev_api; /* the table of an older version */
    }
    if (header == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%R has no exchange table of DLPack %d.", type,
                     DLPACK_MAJOR_VERSION);
    }
    return (const DLPackExchangeAPI *)header;
}

static PyObject *
tuple_of(const int64_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        }
        else {
            PyTuple_SET_ITEM(tuple, i, number);
        }
    }
    return tuple;
}

/* A borrowed tensor: valid while this function runs, nothing to delete.  A table may
 * lack it. */
PyObject *
exchange_describe(PyObject *Py_UNUSED(module), PyObject *op)
{
    const DLPackExchangeAPI *table = table_of((PyObject *)Py_TYPE(op));
    DLTensor tensor;
    if (table == NULL) {
        return NULL;
    }
    if (table->dltensor_from_py_object_no_sync == NULL) {
        return PyErr_Format(PyExc_TypeError, "%s lends no tensors.", Py_TYPE(op)->tp_name);
    }
    if (table->dltensor_from_py_object_no_sync(op, &tensor) != 0) {
        return NULL;
    }
    return Py_BuildValue("((ii)(iii)NNK)", (int)tensor.device.device_type,
                         (int)tensor.device.device_id, tensor.dtype.code, tensor.dtype.bits,
                         tensor.dtype.lanes, tuple_of(tensor.shape, tensor.ndim),
                         tuple_of(tensor.strides, tensor.ndim),
                         (unsigned long long)tensor.byte_offset);
}

/* An owned tensor: ours to delete, or to give to somebody who does. */
PyObject *
exchange_round_trip(PyObject *Py_UNUSED(module), PyObject *op)
{
    const DLPackExchangeAPI *table = table_of((PyObject *)Py_TYPE(op));
    DLManagedTensorVersioned *tensor;
    void *result;
    if (table == NULL || table->managed_tensor_from_py_object_no_sync(op, &tensor) != 0) {
        return NULL;
    }
    if (table->managed_tensor_to_py_object_no_sync(tensor, &result) != 0) {
        return NULL;
    }
    return result;
}

/* The allocator says what is wrong through the caller's function: it may run where there is no
 * Python. */
static void
set_error(void *context, const char *kind, const char *message)
{
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "%s: %s", kind, message);
}

PyObject *
exchange_allocate_like(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *prototype;
    DLManagedTensorVersioned *like, *made;
    void *result;
    if (!PyArg_ParseTuple(args, "OO", &type, &prototype)) {
        return NULL;
    }
    const DLPackExchangeAPI *table = table_of(type);
    const DLPackExchangeAPI *other =
        table == NULL ? NULL : table_of((PyObject *)Py_TYPE(prototype));
    if (other == NULL || other->managed_tensor_from_py_object_no_sync(prototype, &like) != 0) {
        return NULL;
    }
    int status = table->managed_tensor_allocator(&like->dl_tensor, &made, NULL, set_error);
    like->deleter(like);
    if (status != 0 || table->managed_tensor_to_py_object_no_sync(made, &result) != 0) {
        return NULL;
    }
    return result;
}

PyObject *
exchange_work_stream(PyObject *Py_UNUSED(module), PyObject *op)
{
    const DLPackExchangeAPI *table = table_of((PyObject *)Py_TYPE(op));
    DLManagedTensorVersioned *tensor;
    void *stream;
    if (table == NULL || table->managed_tensor_from_py_object_no_sync(op, &tensor) != 0) {
        return NULL;
    }
    DLDevice device = tensor->dl_tensor.device;
    tensor->deleter(tensor);
    if (table->current_work_stream(device.device_type, device.device_id, &stream) != 0) {
        return NULL;
    }
    return stream == NULL ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(stream);
}
