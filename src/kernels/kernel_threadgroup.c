/* kernel_threadgroup.c: room for a kernel's parameters in threadgroup memory.
 *
 * Threads: the GIL is held.
 * Source:  MTLComputeCommandEncoder setThreadgroupMemoryLength:atIndex:, whose lengths are
 *          multiples of 16.
 */
#include "kernels/kernel_call.h"

#include "python/args.h"

#define UNIT 16

static int
refuse_keys(const kernel_call *call, PyObject *sizes)
{
    PyErr_Format(PyExc_TypeError,
                 "%s: threadgroup_memory %R does not name a parameter in threadgroup "
                 "memory; see arguments.",
                 call->kernel->function, sizes);
    return -1;
}

/* The bytes for one parameter, rounded up.  -1 with TypeError or ValueError. */
static int
read_size(const kernel_call *call, const kernel_parameter *parameter, PyObject *sizes,
          size_t *out)
{
    PyObject *value = sizes == NULL ? NULL : PyDict_GetItemWithError(sizes, parameter->name);
    int64_t nbytes;
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError,
                         "%s: '%U' lies in threadgroup memory; give its bytes by "
                         "threadgroup_memory={'%U': nbytes}.",
                         call->kernel->function, parameter->name, parameter->name);
        }
        return -1;
    }
    if (args_int64(call->kernel->function, "threadgroup_memory", value, &nbytes) < 0) {
        return -1;
    }
    if (nbytes < 1 || (uint64_t)nbytes > call->kernel->max_threadgroup_nbytes) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: '%U' cannot have %lld bytes of threadgroup memory; give 1 to %zu, which the "
            "device has.",
            call->kernel->function, parameter->name, (long long)nbytes,
            call->kernel->max_threadgroup_nbytes);
        return -1;
    }
    *out = ((size_t)nbytes + UNIT - 1) / UNIT * UNIT;
    return 0;
}

int
kernel_call_bind_threadgroup(kernel_call *call)
{
    const KernelObject *self = call->kernel;
    PyObject *given = call->launch[LAUNCH_threadgroup_memory];
    PyObject *sizes = args_is_given(given) ? given : NULL;
    size_t total = self->threadgroup_nbytes;
    Py_ssize_t found = 0;
    if (sizes == NULL && self->buffer_count == Py_SIZE(self)) {
        return 0;
    }
    if (sizes != NULL && !PyDict_Check(sizes)) {
        PyErr_Format(PyExc_TypeError,
                     "%s: threadgroup_memory must be a dict of bytes by parameter, not %.100s.",
                     self->function, Py_TYPE(sizes)->tp_name);
        return -1;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        size_t nbytes;
        if (!parameter->is_threadgroup) {
            continue;
        }
        if (read_size(call, parameter, sizes, &nbytes) < 0) {
            return -1;
        }
        total += nbytes;
        found++;
        call->arguments[call->argument_count++] = (bridge_argument){.index = parameter->index,
                                                                    .is_threadgroup = true,
                                                                    .nbytes = nbytes};
    }
    if (sizes != NULL && PyDict_GET_SIZE(sizes) != found) {
        return refuse_keys(call, sizes);
    }
    if (total > self->max_threadgroup_nbytes) {
        PyErr_Format(PyExc_ValueError,
                     "%s: %zu bytes of threadgroup memory, the kernel's own %zu included, are "
                     "more than the device has (%zu).",
                     self->function, total, self->threadgroup_nbytes,
                     self->max_threadgroup_nbytes);
        return -1;
    }
    return 0;
}
