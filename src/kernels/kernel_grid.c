/* kernel_grid.c: how many threads a call asks for, and in which threadgroups.
 *
 * Threads: the GIL is held.
 * Rule:    nothing is guessed but the group, and that where nobody can see it: which threads
 *          make a threadgroup is left to Metal only with `n` and `threads`.
 */
#include "kernels/kernel_call.h"

#include "python/args.h"

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
        PyErr_Format(PyExc_ValueError, "%s: %s is empty; give one to three numbers.", function,
                     what);
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (extents[i] < 0 || extents[i] > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "%s: %s (%lld) is not within 0 to 2**32 - 1.",
                         function, what, (long long)extents[i]);
            return -1;
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
        PyErr_Format(PyExc_ValueError,
                     "%s: a group of (%zu, %zu, %zu) is not between 1 and %zu threads, the "
                     "kernel's max_total_threads.",
                     self->function, group[0], group[1], group[2], self->max_threads);
        return -1;
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
        PyErr_Format(PyExc_TypeError,
                     "%s: %s; give the number of threads by one of n=, threads=(w, h, d), "
                     "or groups= with group=.",
                     call->kernel->function,
                     count == 0 ? "the number of threads is missing"
                                : "the number of threads is given twice");
        return -1;
    }
    if (found == LAUNCH_groups && !args_is_given(call->launch[LAUNCH_group])) {
        PyErr_Format(PyExc_TypeError,
                     "%s: groups= counts threadgroups; give the threads of each by group=.",
                     call->kernel->function);
        return -1;
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
    PyErr_Format(PyExc_TypeError, "%s: n is one number; give threads=%R.",
                 call->kernel->function, n);
    return -1;
}

/* Threads are counted in 32 bits along each axis, however they are asked for. */
static int
check_groups(const kernel_call *call, const bridge_grid *grid)
{
    for (int i = 0; i < 3; i++) {
        if (grid->size[i] * grid->group[i] > UINT32_MAX) { /* each is below 2**32 */
            PyErr_Format(PyExc_ValueError,
                         "%s: groups (%zu) of %zu threads are more than a kernel can count "
                         "along one axis, 2**32 - 1.",
                         call->kernel->function, grid->size[i], grid->group[i]);
            return -1;
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
