/* metal_example.c: a C library that makes and reads Arrays of metal_dlpack without calling
 * Python.
 *
 * Calls:   metal_dlpack.h, found by metal_dlpack.get_include(); exchange.c for DLPack's own C
 *          API.
 * Threads: the GIL is held at the border, and released while items are worked on.
 */
#include <metal_dlpack.h>

#include "exchange.h"

#define MAX_NDIM 64

static const metal_dlpack_dtype float32 = {2, 32, 1}; /* kDLFloat */
static const metal_dlpack_dtype uint8 = {1, 8, 1};    /* kDLUInt */

/* ---- the items, in any layout ---- */

/* Calls `work` with each item.  The index counts up like an odometer, the last axis fastest. */
static void
visit_items(const metal_dlpack_view *view, float *origin,
            void (*work)(float *item, void *context), void *context)
{
    int64_t index[MAX_NDIM] = {0};
    float *item = origin;
    for (int64_t done = 0; done < view->nitems; done++) {
        work(item, context);
        for (int axis = view->ndim - 1; axis >= 0; axis--) {
            item += view->strides[axis]; /* strides count items, and may be negative */
            if (++index[axis] < view->shape[axis]) {
                break;
            }
            item -= view->strides[axis] * view->shape[axis];
            index[axis] = 0;
        }
    }
}

/* What both functions below need: float32 items, reachable by the CPU. */
static int
open_floats(PyObject *op, int for_writing, metal_dlpack_view *view, metal_dlpack_access *access)
{
    if (metal_dlpack->array_get(op, view) < 0) {
        return -1; /* a TypeError: not an Array */
    }
    if (view->dtype.code != float32.code || view->dtype.bits != 32 || view->dtype.lanes != 1) {
        PyErr_SetString(PyExc_TypeError, "metal_example works on float32 items.");
        return -1;
    }
    return metal_dlpack->array_begin(op, for_writing, access);
}

static void
add_item(float *item, void *context)
{
    *(double *)context += *item;
}

static PyObject *
total(PyObject *Py_UNUSED(module), PyObject *op)
{
    metal_dlpack_view view;
    metal_dlpack_access access;
    double sum = 0;
    if (open_floats(op, 0, &view, &access) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS /* the caller keeps `op` alive, and `op` its memory */
    visit_items(&view, access.address, add_item, &sum);
    Py_END_ALLOW_THREADS
    if (metal_dlpack->array_end(op, &access, 0) < 0) {
        return NULL;
    }
    return PyFloat_FromDouble(sum);
}

static void
scale_item(float *item, void *context)
{
    *item *= *(float *)context;
}

static PyObject *
scale(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *op;
    float factor;
    metal_dlpack_view view;
    metal_dlpack_access access;
    if (!PyArg_ParseTuple(args, "Of", &op, &factor) || open_floats(op, 1, &view, &access) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    visit_items(&view, access.address, scale_item, &factor);
    Py_END_ALLOW_THREADS
    if (metal_dlpack->array_end(op, &access, 1) < 0) { /* 1: written; the GPU will see it */
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- making Arrays ---- */

static void
number_item(float *item, void *context)
{
    *item = (*(float *)context)++;
}

static PyObject *
count(PyObject *Py_UNUSED(module), PyObject *args)
{
    long long rows, columns;
    metal_dlpack_view view;
    metal_dlpack_access access;
    if (!PyArg_ParseTuple(args, "LL", &rows, &columns)) {
        return NULL;
    }
    const int64_t shape[] = {rows, columns};
    PyObject *array = metal_dlpack->array_new(2, shape, float32, METAL_DLPACK_DEFAULT);
    if (array == NULL) {
        return NULL;
    }
    if (open_floats(array, 1, &view, &access) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    float next = 0;
    visit_items(&view, access.address, number_item, &next);
    if (metal_dlpack->array_end(array, &access, 1) < 0) {
        Py_CLEAR(array);
    }
    return array;
}

/* What a library does that has an id<MTLBuffer> of its own.  `owner` lives as long as the
 * memory is used by anybody. */
static PyObject *
wrap(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *number, *owner;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTuple(args, "OnO", &number, &nbytes, &owner)) {
        return NULL;
    }
    void *handle = PyLong_AsVoidPtr(number);
    if (handle == NULL && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *buffer = metal_dlpack->buffer_wrap(handle, (size_t)nbytes, owner);
    if (buffer == NULL) {
        return NULL;
    }
    const int64_t shape[] = {nbytes};
    PyObject *array = metal_dlpack->buffer_array(buffer, 1, shape, NULL, uint8, 0);
    Py_DECREF(buffer); /* the Array keeps it */
    return array;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"total", total, METH_O, "total(a): the sum of a float32 Array's items."},
    {"scale", scale, METH_VARARGS,
     "scale(a, factor): multiplies a float32 Array's items in place."},
    {"count", count, METH_VARARGS, "count(rows, columns): a float32 Array of 0, 1, 2 ..."},
    {"wrap", wrap, METH_VARARGS,
     "wrap(handle, nbytes, owner): the bytes of an id<MTLBuffer> as a uint8 Array."},
    {"describe", exchange_describe, METH_O,
     "describe(x): device, dtype, shape, strides, byte offset."},
    {"round_trip", exchange_round_trip, METH_O,
     "round_trip(x): x by way of an owned DLPack tensor, on the same memory."},
    {"allocate_like", exchange_allocate_like, METH_VARARGS,
     "allocate_like(type, x): what type's allocator makes with x's shape and dtype."},
    {"work_stream", exchange_work_stream, METH_O,
     "work_stream(x): the stream that x's framework works on, as an int or None."},
    {NULL, NULL, 0, NULL},
};

static int
exec(PyObject *Py_UNUSED(module))
{
    return metal_dlpack_import();
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "metal_example",
    .m_doc = "A C library on metal_dlpack's C API.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_metal_example(void)
{
    return PyModuleDef_Init(&definition);
}
