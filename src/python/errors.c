/* errors.c: see errors.h. */
#include "python/errors.h"

#include "metal/pool.h"
#include "metal/timeline.h"

PyDoc_STRVAR(copy_required_error_doc,
             "A copy is needed, and copy=False forbids it.\n\n"
             "Derives from BufferError and from ValueError: the array API standard names\n"
             "BufferError for ``__dlpack__`` and both for ``from_dlpack``.");

PyDoc_STRVAR(metal_error_doc,
             "Metal refused a call or a command buffer failed; the text is Metal's own.");

/* SPEC export-copy-false */
int
errors_make_classes(PyObject *module, md_state *state)
{
    PyObject *bases = PyTuple_Pack(2, PyExc_BufferError, PyExc_ValueError);
    if (bases != NULL) {
        state->copy_required_error =
            PyErr_NewExceptionWithDoc("metal_dlpack.CopyRequiredError", copy_required_error_doc,
                                      bases, NULL);
        state->metal_error =
            PyErr_NewExceptionWithDoc("metal_dlpack.MetalError", metal_error_doc,
                                      PyExc_RuntimeError, NULL);
        Py_DECREF(bases);
    }
    if (state->copy_required_error == NULL || state->metal_error == NULL ||
        PyModule_AddObjectRef(module, "CopyRequiredError", state->copy_required_error) < 0) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "MetalError", state->metal_error);
}

static PyObject *
class_of_fault(md_state *state, layout_fault_code code)
{
    if (state == NULL) {
        return code == LAYOUT_FAULT_OVERFLOW ? PyExc_OverflowError : PyExc_ValueError;
    }
    switch (code) {
    case LAYOUT_FAULT_INDEX: return PyExc_IndexError;
    default: return PyExc_ValueError;
    }
}

PyObject *
errors_from_layout(md_state *state, const char *where, const layout_fault *fault)
{
    return PyErr_Format(class_of_fault(state, fault->code), "%s: %s.", where,
                        layout_fault_text(fault).text);
}

PyObject *
errors_copy_required(md_state *state, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyErr_FormatV(state->copy_required_error, format, values);
    va_end(values);
    return NULL;
}

int
errors_raise(PyObject *class, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyErr_FormatV(class, format, values);
    va_end(values);
    return -1;
}

PyObject *
errors_take(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        (void)PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

void
errors_restore(PyObject *exception)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exception);
#else
    PyObject *type = exception == NULL ? NULL : Py_NewRef((PyObject *)Py_TYPE(exception));
    PyErr_Restore(type, exception,
                  exception == NULL ? NULL : PyException_GetTraceback(exception));
#endif
}

PyObject *
errors_copy(PyObject *exception)
{
    PyObject *args = PyObject_GetAttrString(exception, "args");
    PyObject *copy = NULL;
    if (args != NULL && PyTuple_Check(args)) {
        copy = PyObject_Call((PyObject *)Py_TYPE(exception), args, NULL);
    }
    Py_XDECREF(args);
    if (copy != NULL && !PyExceptionInstance_Check(copy)) {
        Py_CLEAR(copy);
    }
    PyErr_Clear();
    return copy;
}

PyObject *
errors_no_buffer(md_state *state, const char *where, bridge_status status,
                 const device_record *device, uint64_t nbytes)
{
    pool_counts modes[POOL_MODES], total;
    timeline_note_drop();
    pool_read(device, modes, &total);
    unsigned long long asked = nbytes, live = total.live_nbytes, limit = pool_limit(device);
    switch (status) {
    case BRIDGE_TOO_LARGE:
        return PyErr_Format(PyExc_MemoryError,
                            "%s: %llu bytes are more than one buffer of the device can hold "
                            "(max_buffer_length is %llu bytes); use several buffers.",
                            where, asked, (unsigned long long)device->facts.max_buffer_length);
    case BRIDGE_OVER_LIMIT:
        return PyErr_Format(
            PyExc_MemoryError,
            "%s: allocating %llu bytes would exceed the limit set by set_memory_limit() (%llu "
            "bytes, %llu in use); delete Arrays, or raise it.",
            where, asked, limit, live);
    case BRIDGE_NO_MEMORY:
        return PyErr_Format(PyExc_MemoryError,
                            "%s: Metal could not allocate a buffer of %llu bytes (%llu are in "
                            "use); delete Arrays, or use smaller ones.",
                            where, asked, live);
    default: return errors_from_bridge(state, where, status, NULL, nbytes);
    }
}

/* Is the code among the numbers of Metal's words?  As a rule: "(00000008:kIOGPU...)". */
static bool
names_its_code(const bridge_error *error)
{
    const char *at = error->text;
    while ((at = strpbrk(at, "0123456789")) != NULL) {
        char *end;
        if (strtol(at, &end, 10) == error->code) {
            return true;
        }
        at = end;
    }
    return false;
}

/* What to do, where Metal's words do not say it.  Source: MTLCommandBuffer.h MTLCommandBufferError; what
 * Macs say: "Impacting Interactivity", "Ignored (for causing prior/excessive GPU errors)". */
static const char *
way_out(const bridge_error *error)
{
    static const long timeout = 2, revoked = 4, not_permitted = 7;
    if (error->code == revoked || error->code == not_permitted) {
        return "; after earlier errors Metal refuses what this queue gets: use a new Stream, "
               "and "
               "if that fails too, start the process again";
    }
    if (error->code == timeout || strstr(error->text, "Interactivity") != NULL) {
        return "; the system ends work that holds the GPU for seconds: launch less at a time";
    }
    return "";
}

static PyObject *
raise_command_failed(md_state *state, const char *where, const bridge_error *error)
{
    const char *text = bridge_status_text(BRIDGE_COMMAND_FAILED);
    bridge_error told = *error;
    size_t length = strlen(told.text);
    if (length > 0 && told.text[length - 1] == '.') {
        told.text[length - 1] = '\0'; /* the sentence is ours */
    }
    if (names_its_code(&told)) {
        return PyErr_Format(state->metal_error, "%s: %s: %s%s.", where, text, told.text,
                            way_out(&told));
    }
    return PyErr_Format(state->metal_error, "%s: %s: %s (code %ld)%s.", where, text, told.text,
                        told.code, way_out(&told));
}

PyObject *
errors_from_bridge(md_state *state, const char *where, bridge_status status,
                   const bridge_error *error, uint64_t nbytes)
{
    const char *text = bridge_status_text(status);
    timeline_note_drop();
    if (status == BRIDGE_NO_MEMORY || status == BRIDGE_TOO_LARGE ||
        status == BRIDGE_OVER_LIMIT) {
        return PyErr_Format(PyExc_MemoryError, "%s: %s (%llu bytes requested).", where, text,
                            (unsigned long long)nbytes);
    }
    if (status == BRIDGE_COMMAND_FAILED && error != NULL) {
        return raise_command_failed(state, where, error);
    }
    return PyErr_Format(state->metal_error, "%s: %s.", where, text);
}

/* ---- the last refusal, for users whose framework hides it ---- */

#define KEY "metal_dlpack.last_refusal"

/* SPEC refusal-kept */
void
refusal_note(void)
{
    PyObject *exception = errors_take();
    PyObject *copy = exception == NULL ? NULL : errors_copy(exception);
    PyObject *dict = PyThreadState_GetDict(); /* borrowed; NULL: none can be made */
    if (copy != NULL && dict != NULL) {
        (void)PyDict_SetItemString(dict, KEY, copy);
    }
    Py_XDECREF(copy);
    errors_restore(exception); /* and not what went wrong here */
}

PyDoc_STRVAR(
    last_refusal_doc,
    "last_refusal($module, /)\n--\n\n"
    "The last error that an Array raised on this thread when it was asked for its tensor.\n\n"
    "MLX hides every refusal behind a TypeError of its own; this is the hidden error.  A\n"
    "consumer may have asked again with other keywords, and received the tensor.\n\n"
    "Returns\n-------\n"
    "Exception or None\n"
    "    The last error of __dlpack__ or the C exchange API, without its traceback.  If the\n"
    "    caller of the allocator gave no function for errors, its error is here too.  None\n"
    "    if nothing was refused yet.\n\n"
    "Threads: each has its own.");

static PyObject *
core_last_refusal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *dict = PyThreadState_GetDict();
    PyObject *key = PyUnicode_FromString(KEY);
    if (key == NULL) {
        return NULL;
    }
    PyObject *noted = dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    Py_DECREF(key);
    return noted != NULL ? Py_NewRef(noted) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyMethodDef refusal_functions[] = {
    {"last_refusal", core_last_refusal, METH_NOARGS, last_refusal_doc},
    {NULL, NULL, 0, NULL},
};
