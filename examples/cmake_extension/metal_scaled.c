/* metal_scaled.c: a C extension that reads one Array and makes another.
 *
 * Calls:   metal_dlpack.h.
 * Threads: the GIL is held at the border, and released while items are worked on.
 */
#include <metal_dlpack.h>

/* The items of `source`, strided, times `factor`, into `result`, which is in C order.  -1 with
 * an exception. */
static int
scale_items(PyObject *source, const metal_dlpack_view *view, float factor, PyObject *result)
{
    metal_dlpack_access reading, writing;
    if (metal_dlpack->array_begin(source, 0, &reading) < 0) { /* waits for work in flight */
        return -1;
    }
    int status = metal_dlpack->array_begin(result, 1, &writing);
    if (status == 0) {
        const float *from = reading.address;
        float *to = writing.address;
        Py_BEGIN_ALLOW_THREADS /* the caller keeps both Arrays alive */
        for (int64_t i = 0; i < view->nitems; i++) {
            to[i] = factor * from[i * view->strides[0]];
        }
        Py_END_ALLOW_THREADS
        status = metal_dlpack->array_end(result, &writing, 1);
    }
    return metal_dlpack->array_end(source, &reading, 0) < 0 ? -1 : status;
}

static PyObject *
scaled(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *array;
    float factor;
    metal_dlpack_view view;
    if (!PyArg_ParseTuple(args, "Of", &array, &factor) ||
        metal_dlpack->array_get(array, &view) < 0) {
        return NULL;
    }
    if (view.ndim != 1 || view.dtype.code != 2 || view.dtype.bits != 32 ||
        view.dtype.lanes != 1) { /* code 2: kDLFloat */
        PyErr_SetString(PyExc_TypeError, "scaled: a float32 Array with one axis is needed.");
        return NULL;
    }
    PyObject *result = metal_dlpack->array_new(1, view.shape, view.dtype, METAL_DLPACK_DEFAULT);
    if (result != NULL && scale_items(array, &view, factor, result) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

static PyMethodDef functions[] = {
    {"scaled", scaled, METH_VARARGS,
     "scaled(array, factor): a float32 vector's items times factor, as an Array of their own."},
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
    .m_name = "metal_scaled",
    .m_doc = "A C library on metal_dlpack's C API.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit_metal_scaled(void)
{
    return PyModuleDef_Init(&definition);
}
