/* kernel_grid.c: how many threads a call asks for, and in which threadgroups.
 *
 * Threads: the GIL is held.
 * Rule:    nothing is guessed but the group, and that where nobody can see it: which threads
 *          make a threadgroup is left to Metal only with `n` and `threads`.
 */
#include "kernels/kernel_call.h"

#include "python/args.h"
#include "python/errors.h"

/* An int, or one to three of them; the rest of `out` is 1.  Each is 0 to 2**32 - 1, which is
 * what a kernel can count. */
static int
read_extents(const kernel_call *call, const char *what, PyObject *value, size_t out[3])
{
    const char *function = call->kernel->function;
    int64_t extents[3] = {1, 1, 1};
    int count = 1;
    if (!args_small_int(value, &extents[0]) &&
        args_int64s(function, what, value, extents, 3, &count) < 0) {
        return -1;
    }
    if (count == 0) {
        return errors_raise(PyExc_ValueError, "%s: %s is empty; give one to three numbers.",
                            function, what);
    }
    for (int i = 0; i < 3; i++) {
        if (extents[i] < 0 || extents[i] > UINT32_MAX) {
            return errors_raise(PyExc_ValueError, "%s: %s (%lld) is not within 0 to 2**32 - 1.",
                                function, what, (long long)extents[i]);
        }
        out[i] = (size_t)extents[i];
    }
    return 0;
}

static int
read_group(const kernel_call *call, size_t group[3])
{
    const KernelObject *self = call->kernel;
    PyObject *value = call->launch[LAUNCH_group];
    group[0] = 0; /* as many as suit */
    group[1] = group[2] = 1;
    if (!args_is_given(value)) {
        return 0;
    }
    if (read_extents(call, "group", value, group) < 0) {
        return -1;
    }
    bool is_empty = group[0] == 0 || group[1] == 0 || group[2] == 0;
    /* each is below 2**32: only the product of all three may overflow */
    if (is_empty || group[0] * group[1] > self->max_threads ||
        group[0] * group[1] * group[2] > self->max_threads) {
        return errors_raise(
            PyExc_ValueError,
            "%s: a group of (%zu, %zu, %zu) is not between 1 and %zu threads, the "
            "kernel's max_total_threads.",
            self->function, group[0], group[1], group[2], self->max_threads);
    }
    return 0;
}

/* Which of the three says how many; -1 with TypeError. */
static int
choose_keyword(const kernel_call *call)
{
    static const int keywords[] = {LAUNCH_n, LAUNCH_threads, LAUNCH_groups};
    int found = -1, count = 0;
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (args_is_given(call->launch[keywords[i]])) {
            found = keywords[i];
            count++;
        }
    }
    if (count != 1) {
        return errors_raise(
            PyExc_TypeError,
            "%s: %s; give the number of threads by one of n=, threads=(w, h, d), "
            "or groups= with group=.",
            call->kernel->function,
            count == 0 ? "the number of threads is missing"
                       : "the number of threads is given twice");
    }
    if (found == LAUNCH_groups && !args_is_given(call->launch[LAUNCH_group])) {
        return errors_raise(
            PyExc_TypeError,
            "%s: groups= counts threadgroups; give the threads of each by group=.",
            call->kernel->function);
    }
    return found;
}

/* Not several numbers, whatever holds them. */
static int
check_n(const kernel_call *call)
{
    PyObject *n = call->launch[LAUNCH_n];
    if (PyIndex_Check(n) || PyUnicode_Check(n) || !PySequence_Check(n)) {
        return 0; /* or no number at all: read_extents says so */
    }
    return errors_raise(PyExc_TypeError, "%s: n is one number; give threads=%R.",
                        call->kernel->function, n);
}

/* Threads are counted in 32 bits along each axis, however they are asked for. */
static int
check_groups(const kernel_call *call, const bridge_grid *grid)
{
    for (int i = 0; i < 3; i++) {
        if (grid->size[i] * grid->group[i] > UINT32_MAX) { /* each is below 2**32 */
            return errors_raise(
                PyExc_ValueError,
                "%s: groups (%zu) of %zu threads are more than a kernel can count "
                "along one axis, 2**32 - 1.",
                call->kernel->function, grid->size[i], grid->group[i]);
        }
    }
    return 0;
}

int
kernel_call_read_grid(const kernel_call *call, bridge_grid *out)
{
    static const char *const names[] = {"n", "threads", "groups"};
    int keyword = choose_keyword(call);
    if (keyword < 0 || (keyword == LAUNCH_n && check_n(call) < 0) ||
        read_extents(call, names[keyword], call->launch[keyword], out->size) < 0 ||
        read_group(call, out->group) < 0) {
        return -1;
    }
    out->is_groups = keyword == LAUNCH_groups;
    if (out->is_groups && check_groups(call, out) < 0) {
        return -1;
    }
    return out->size[0] != 0 && out->size[1] != 0 && out->size[2] != 0;
}

/* ---- threadgroups ---- */

/* SPEC MTLComputeCommandEncoder setThreadgroupMemoryLength:atIndex: lengths are multiples. */
#define UNIT 16

static int
refuse_keys(const kernel_call *call, PyObject *sizes)
{
    return errors_raise(PyExc_TypeError,
                        "%s: threadgroup_memory %R does not name a parameter in threadgroup "
                        "memory; see arguments.",
                        call->kernel->function, sizes);
}

/* The bytes for one parameter, rounded up.  -1 with TypeError or ValueError. */
static int
read_size(const kernel_call *call, const kernel_parameter *parameter, PyObject *sizes,
          size_t *out)
{
    /* owned: its own conversion may change the dict */
    PyObject *value =
        sizes == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(sizes, parameter->name));
    int64_t nbytes;
    *out = 0;
    if (value == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError,
                         "%s: '%U' lies in threadgroup memory; give its bytes by "
                         "threadgroup_memory={'%U': nbytes}.",
                         call->kernel->function, parameter->name, parameter->name);
        }
        return -1;
    }
    int result = args_int64(call->kernel->function, "threadgroup_memory", value, &nbytes);
    Py_DECREF(value);
    if (result < 0) {
        return -1;
    }
    if (nbytes < 1 || (uint64_t)nbytes > call->kernel->max_threadgroup_nbytes) {
        return errors_raise(
            PyExc_ValueError,
            "%s: '%U' cannot have %lld bytes of threadgroup memory; give 1 to %zu, which the "
            "device has.",
            call->kernel->function, parameter->name, (long long)nbytes,
            call->kernel->max_threadgroup_nbytes);
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
        return args_refuse_type(self->function, "threadgroup_memory",
                                "a dict of bytes by parameter", sizes);
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        size_t nbytes;
        if (kernel_parameter_is_given(parameter)) {
            continue;
        }
        if (read_size(call, parameter, sizes, &nbytes) < 0) {
            return -1;
        }
        found++;
        if (parameter->is_unlisted) {
            continue;
        }
        total += nbytes;
        call->arguments[call->argument_count++] = (bridge_argument){.index = parameter->index,
                                                                    .is_threadgroup = true,
                                                                    .nbytes = nbytes};
    }
    if (sizes != NULL && PyDict_GET_SIZE(sizes) != found) {
        return refuse_keys(call, sizes);
    }
    if (total > self->max_threadgroup_nbytes) {
        return errors_raise(
            PyExc_ValueError,
            "%s: %zu bytes of threadgroup memory, the kernel's own %zu included, are "
            "more than the device has (%zu).",
            self->function, total, self->threadgroup_nbytes, self->max_threadgroup_nbytes);
    }
    return 0;
}
