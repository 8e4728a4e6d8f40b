/* kernel_outputs.c: out=: Arrays that a call allocates for parameters that it was not given.
 *
 * Owns:    the Arrays, among `kept`, until the call ends; `call->outputs`, what the call returns.
 * Threads: the GIL is held; released while allocating.
 */
#include "kernels/kernel_call.h"

#include "array/array.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/storage_mode.h"
#include "values/dtype_type.h"

static bool
is_several(PyObject *value)
{
    return PyTuple_Check(value) || PyList_Check(value);
}

/* (shape, dtype), and not several of them. */
static bool
is_one(PyObject *asked)
{
    return PySequence_Fast_GET_SIZE(asked) == 2 &&
           !is_several(PySequence_Fast_GET_ITEM(asked, 1));
}

/* Owned (+1), or NULL with TypeError, ValueError or MemoryError. */
static PyObject *
make_output(const kernel_call *call, PyObject *asked)
{
    const char *function = call->kernel->function;
    int64_t shape[LAYOUT_MAX_NDIM];
    array_creation what = {.device = call->kernel->device, .shape = shape, .order = 'C'};
    if (!is_several(asked) || !is_one(asked)) {
        return PyErr_Format(PyExc_TypeError,
                            "%s: out is (shape, dtype), or several of them, not %R.", function,
                            asked);
    }
    if (args_int64s(function, "the shape in out", PySequence_Fast_GET_ITEM(asked, 0), shape,
                    LAYOUT_MAX_NDIM, &what.ndim) < 0 ||
        dtype_type_convert(call->state, function, PySequence_Fast_GET_ITEM(asked, 1),
                           &what.dtype) < 0 ||
        storage_mode_convert(call->state, function, NULL, &what.mode) < 0) {
        return NULL;
    }
    return array_allocate(call->state, function, &what);
}

/* The next parameter that the kernel may write and that nothing is given for; -1: none. */
static Py_ssize_t
find_missing(const kernel_call *call)
{
    const KernelObject *self = call->kernel;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (parameter->kind == BRIDGE_PARAMETER_BUFFER && parameter->is_written &&
            call->values[i] == NULL) {
            return i;
        }
    }
    return -1;
}

/* `*made` is the Array, owned (+1). */
static int
add_output(kernel_call *call, PyObject *asked, PyObject **made)
{
    Py_ssize_t place = find_missing(call);
    *made = NULL;
    if (place < 0) {
        return errors_raise(
            PyExc_TypeError,
            "%s: out asks for more Arrays than there are parameters which the kernel may write "
            "and for which nothing is given.",
            call->kernel->function);
    }
    *made = make_output(call, asked);
    if (*made == NULL) {
        return -1;
    }
    array_tell_unwritten(array_cast(*made), false);
    call->values[place] = *made;
    call->kept[call->kept_count++] = Py_NewRef(*made);
    return 0;
}

int
kernel_call_add_outputs(kernel_call *call)
{
    PyObject *asked = call->launch[LAUNCH_out];
    if (!args_is_given(asked)) {
        return 0;
    }
    if (!is_several(asked) || is_one(asked)) {
        return add_output(call, asked, &call->outputs);
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(asked);
    call->outputs = PyTuple_New(count);
    for (Py_ssize_t i = 0; call->outputs != NULL && i < count; i++) {
        PyObject *made;
        if (i >= PySequence_Fast_GET_SIZE(asked) ||
            add_output(call, PySequence_Fast_GET_ITEM(asked, i), &made) < 0) {
            Py_CLEAR(call->outputs);
            break;
        }
        PyTuple_SET_ITEM(call->outputs, i, made);
    }
    return call->outputs == NULL ? -1 : 0;
}
