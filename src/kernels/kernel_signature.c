/* kernel_signature.c: a kernel's parameters in their order, and which object of a call is for which.
 *
 * Owns:    nothing; what it hands out is borrowed from the caller's arguments.
 * Calls:   metal_dlpack/language/signatures.py for the order that the source says.
 * Threads: the GIL is held.
 * Rule:    a keyword of the launch is never a parameter's: a parameter of such a name is given
 *          by position.  Only `out` is both, by what it is given.
 */
#include "kernels/kernel_call.h"

#include "python/call_python.h"

/* ---- the order ---- */

const char *const kernel_kind_names[] = {[BRIDGE_PARAMETER_BUFFER] = "buffer",
                                         [BRIDGE_PARAMETER_THREADGROUP] = "threadgroup",
                                         [BRIDGE_PARAMETER_TEXTURE] = "texture",
                                         [BRIDGE_PARAMETER_SAMPLER] = "sampler",
                                         [BRIDGE_PARAMETER_OTHER] = ""};

/* What Metal lists, in whatever order it does: [(name, kind, index)].  Owned (+1). */
static PyObject *
describe_listed(const bridge_kernel_facts *facts)
{
    PyObject *list = PyList_New((Py_ssize_t)facts->count);
    for (size_t i = 0; list != NULL && i < facts->count; i++) {
        const bridge_parameter *one = &facts->parameters[i];
        PyObject *row =
            Py_BuildValue("(ssI)", one->name, kernel_kind_names[one->kind], one->index);
        if (row == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    return list;
}

PyObject *
kernel_order_of(PyObject *text, PyObject *name, const bridge_kernel_facts *facts)
{
    PyObject *listed = describe_listed(facts);
    PyObject *asked = listed == NULL ? NULL : PyTuple_Pack(2, name, listed);
    PyObject *order = asked == NULL ? NULL : call_python(CALL_KERNEL_ORDER, text, asked);
    Py_XDECREF(asked);
    Py_XDECREF(listed);
    return order;
}

/* ---- by position ---- */

PyObject *
kernel_names(const KernelObject *self)
{
    PyObject *names = PyUnicode_FromString("");
    for (Py_ssize_t i = 0; names != NULL && i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (kernel_parameter_is_given(parameter)) {
            bool is_first = PyUnicode_GET_LENGTH(names) == 0;
            Py_SETREF(names, PyUnicode_FromFormat(is_first ? "%U%U" : "%U, %U", names,
                                                  parameter->name));
        }
    }
    return names;
}

/* TypeError; `format` has room for the kernel, and `what`, and its parameters. */
static int
refuse(const KernelObject *self, const char *format, PyObject *what)
{
    PyObject *names = kernel_names(self);
    if (names != NULL && what != NULL) {
        PyErr_Format(PyExc_TypeError, format, self->name, what, names);
    }
    Py_XDECREF(names);
    return -1;
}

static int
refuse_surplus(const KernelObject *self, Py_ssize_t nargs)
{
    PyObject *counts = PyUnicode_FromFormat("%d argument%s, not %zd", self->buffer_count,
                                            self->buffer_count == 1 ? "" : "s", nargs);
    int result = refuse(self, "%U: it takes %U: (%U).", counts);
    Py_XDECREF(counts);
    return result;
}

static int
set_positional(kernel_call *call, PyObject *const *args, Py_ssize_t nargs)
{
    const KernelObject *self = call->kernel;
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        bool is_given = kernel_parameter_is_given(&self->parameters[i]) && next < nargs;
        call->values[i] = is_given ? args[next++] : NULL;
    }
    return next < nargs ? refuse_surplus(self, nargs) : 0;
}

/* ---- by name ---- */

/* Names in calls are interned, and so are ours: the same text is the same object, as a rule. */
static bool
is_name(PyObject *name, PyObject *ours)
{
    return name == ours || PyUnicode_Compare(name, ours) == 0;
}

static PyObject **
find_launch_keyword(kernel_call *call, PyObject *name)
{
    md_state *state = call->state;
#define LAUNCH_AS_NAME(name) state->str_##name,
    PyObject *const keywords[] = {LAUNCH_KEYWORD_LIST(LAUNCH_AS_NAME)};
#undef LAUNCH_AS_NAME
    for (int i = 0; i < LAUNCH_KEYWORDS; i++) {
        if (is_name(name, keywords[i])) {
            return &call->launch[i];
        }
    }
    return NULL;
}

static PyObject **
find_parameter(kernel_call *call, PyObject *name)
{
    const KernelObject *self = call->kernel;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (kernel_parameter_is_given(parameter) && is_name(name, parameter->name)) {
            return &call->values[i];
        }
    }
    return NULL;
}

/* Kernels call a parameter `out` as a rule: given anything but shapes, it is the parameter's. */
static bool
is_no_shape(PyObject *value)
{
    return !PyTuple_Check(value) && !PyList_Check(value) && value != Py_None;
}

static int
set_keyword(kernel_call *call, PyObject *name, PyObject *value)
{
    PyObject **place = find_launch_keyword(call, name);
    if (place == NULL || (place == &call->launch[LAUNCH_out] && is_no_shape(value))) {
        PyObject **parameter = find_parameter(call, name);
        place = parameter == NULL ? place : parameter;
    }
    if (place == NULL) {
        return refuse(call->kernel,
                      "%U: there is no argument '%U'; it takes (%U), and for the launch n, "
                      "threads (a grid in threads), groups (a grid in threadgroups), group (a "
                      "threadgroup, or block), stream, threadgroup_memory, strides, out and "
                      "resources.",
                      name);
    }
    if (*place != NULL) {
        return refuse(call->kernel, "%U: there are two values for '%U'; it takes (%U).", name);
    }
    *place = value;
    return 0;
}

/* ---- what is missing ---- */

static int
refuse_missing(kernel_call *call)
{
    const KernelObject *self = call->kernel;
    PyObject *missing = PyUnicode_FromString("");
    bool is_taken = false; /* ... by the launch, which has a keyword of the name */
    for (Py_ssize_t i = 0; missing != NULL && i < Py_SIZE(self); i++) {
        const kernel_parameter *parameter = &self->parameters[i];
        if (kernel_parameter_is_given(parameter) && call->values[i] == NULL) {
            const char *between = PyUnicode_GET_LENGTH(missing) == 0 ? "" : ", ";
            Py_SETREF(missing,
                      PyUnicode_FromFormat("%U%s'%U'", missing, between, parameter->name));
            PyObject **taken = find_launch_keyword(call, parameter->name);
            is_taken |= taken != NULL && taken != &call->launch[LAUNCH_out];
        }
    }
    int result = refuse(self,
                        is_taken ? "%U: missing %U of (%U); give by position an argument that "
                                   "is named as a keyword of the launch."
                                 : "%U: missing %U of (%U).",
                        missing);
    Py_XDECREF(missing);
    return result;
}

int
kernel_call_read(kernel_call *call, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const KernelObject *self = call->kernel;
    for (int i = 0; i < LAUNCH_KEYWORDS; i++) {
        call->launch[i] = NULL;
    }
    if (set_positional(call, args, nargs) < 0) {
        return -1;
    }
    Py_ssize_t nkeywords = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        if (set_keyword(call, PyTuple_GET_ITEM(kwnames, k), args[nargs + k]) < 0) {
            return -1;
        }
    }
    if (kernel_call_make_room(call) < 0 || kernel_call_add_outputs(call) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        if (kernel_parameter_is_given(&self->parameters[i]) && call->values[i] == NULL) {
            return refuse_missing(call);
        }
    }
    return 0;
}

/* ---- what is no call ---- */

PyObject *
kernel_subscript(PyObject *op, PyObject *Py_UNUSED(key))
{
    return PyErr_Format(PyExc_TypeError,
                        "%U[...]: a launch has its size beside its arguments; write %U(x, "
                        "groups=grid, group=block), or n= or threads= for a grid in threads.",
                        kernel_cast(op)->name, kernel_cast(op)->name);
}
