/* seen_tensor.c: see seen_tensor.h. */
#include "module/seen_tensor.h"

#include <stdio.h>

#include "array/array_numpy.h"
#include "exchange/capsule_names.h"
#include "exchange/foreign_types.h"
#include "metal/managed_tensor.h"

static void
read_versioned(DLManagedTensorVersioned *managed, seen_tensor *out)
{
    out->managed = managed;
    out->is_versioned = true;
    out->version = managed->version;
    if (managed->version.major == DLPACK_MAJOR_VERSION) {
        out->flags = managed->flags;
        out->tensor = &managed->dl_tensor;
    }
}

int
seen_open_capsule(const char *function, PyObject *capsule, seen_tensor *out)
{
    *out = (seen_tensor){0};
    if (!PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError, "%s: __dlpack__ returned %.100s instead of a capsule.",
                     function, Py_TYPE(capsule)->tp_name);
        return -1;
    }
    if (PyCapsule_IsValid(capsule, CAPSULE_VERSIONED)) {
        read_versioned(PyCapsule_GetPointer(capsule, CAPSULE_VERSIONED), out);
    }
    else if (PyCapsule_IsValid(capsule, CAPSULE_LEGACY)) {
        out->managed = PyCapsule_GetPointer(capsule, CAPSULE_LEGACY);
        out->tensor = &((DLManagedTensor *)out->managed)->dl_tensor;
    }
    else {
        const char *name = PyCapsule_GetName(capsule);
        PyErr_Format(PyExc_BufferError,
                     "%s: a capsule named '%.100s' holds no tensor ('dltensor' or "
                     "'dltensor_versioned') or was already consumed.",
                     function, name == NULL ? "" : name);
        return -1;
    }
    out->capsule = Py_NewRef(capsule);
    return 0;
}

int
seen_open_call(const char *function, PyObject *producer, PyObject *keywords, seen_tensor *out)
{
    *out = (seen_tensor){0};
    PyObject *method = PyObject_GetAttrString(producer, "__dlpack__");
    if (method == NULL) {
        return -1;
    }
    PyObject *capsule = PyObject_VectorcallDict(method, NULL, 0, keywords);
    Py_DECREF(method);
    if (capsule == NULL) {
        return -1;
    }
    int result = seen_open_capsule(function, capsule, out);
    PyObject *type, *value, *traceback; /* a refused capsule's destructor can run code */
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF(capsule);
    PyErr_Restore(type, value, traceback);
    return result;
}

/* Call with fewer and fewer keywords: a producer raises TypeError for one that it does not
 * know. */
static int
open_with_fewer(md_state *state, const char *function, PyObject *producer, seen_tensor *out)
{
    PyObject *keywords = PyDict_New();
    int result = -1;
    if (keywords != NULL &&
        PyDict_SetItem(keywords, state->str_max_version, state->max_version) == 0 &&
        PyDict_SetItem(keywords, state->str_copy, Py_False) == 0) {
        result = seen_open_call(function, producer, keywords, out);
    }
    if (result < 0 && keywords != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        (void)PyDict_DelItem(keywords, state->str_copy);
        result = seen_open_call(function, producer, keywords, out);
    }
    if (result < 0 && keywords != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        result = seen_open_call(function, producer, NULL, out);
    }
    Py_XDECREF(keywords);
    return result;
}

int
seen_open(md_state *state, const char *function, PyObject *producer, seen_tensor *out)
{
    DLManagedTensorVersioned *managed;
    *out = (seen_tensor){0};
    if (PyCapsule_CheckExact(producer)) {
        return seen_open_capsule(function, producer, out);
    }
    int is_made = foreign_tensor_of(state, producer, &managed);
    if (is_made < 0) {
        return -1;
    }
    if (is_made > 0) {
        read_versioned(managed, out);
        return 0;
    }
    int result = open_with_fewer(state, function, producer, out);
    /* mutant survives (condition always): callers ask for the exception first */
    if (result < 0) {
        array_numpy_explain_refusal(state, function, producer);
    }
    return result;
}

void
seen_close(seen_tensor *seen)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (seen->capsule != NULL) {
        Py_CLEAR(seen->capsule); /* its destructor frees what nobody took */
    }
    else if (seen->managed != NULL) {
        managed_delete(seen->managed, seen->is_versioned);
    }
    PyErr_Restore(type, value, traceback);
    *seen = (seen_tensor){0};
}

int
seen_check(const char *function, const seen_tensor *seen, dlpack_facts *facts)
{
    dlpack_fault fault;
    if (seen->tensor == NULL) {
        PyErr_Format(PyExc_BufferError,
                     "%s: the tensor is of DLPack %u.%u; only major version %d is supported.",
                     function, seen->version.major, seen->version.minor, DLPACK_MAJOR_VERSION);
        return -1;
    }
    bool is_padded = (seen->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
    bool is_sound = dlpack_check(seen->tensor, is_padded, facts, &fault);
    if (is_sound && facts->nitems > 0 && seen->tensor->device.device_type == kDLCPU) {
        is_sound = dlpack_check_address(seen->tensor, facts, &fault);
    }
    if (is_sound) {
        return 0;
    }
    char text[LAYOUT_TEXT_MAX];
    dlpack_write_fault(&fault, text);
    PyErr_Format(PyExc_BufferError, "%s: %s.", function, text);
    return -1;
}
