/* kernel_source.c: Metal source on its way to a library; see kernel_object.h.
 *
 * Calls:   metal_bridge.h to compile; metal_dlpack/kernel_source.py for what comes before that,
 *          metal_dlpack/compile_errors.py for what the compiler said.
 */
#include "kernels/kernel_object.h"

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"

/* ---- what the compiler said ---- */

/* CompileError of its words. */
static void
raise_source_error(PyObject *words)
{
    PyObject *error = call_python(CALL_SOURCE_ERROR, words, NULL);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

void
kernel_source_raise(md_state *state, const char *where, bridge_status status, char *message,
                    bool is_source)
{
    PyObject *words = NULL;
    if (message != NULL) {
        words = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    }
    else {
        (void)PyErr_CheckSignals(); /* without words it was interrupted, by Ctrl-C as a rule */
    }
    free(message);
    if (words != NULL && is_source) {
        raise_source_error(words);
    }
    else if (words != NULL) {
        PyErr_Format(state->metal_error, "%s: %U", where, words);
    }
    else if (!PyErr_Occurred()) {
        (void)errors_from_bridge(state, where, status, NULL, 0);
    }
    Py_XDECREF(words);
}

/* ---- compiling ---- */

static int
read_math(const kernel_source *request, bridge_math *out)
{
    static const char *const names[] = {"fast", "relaxed", "safe"};
    const char *text;
    *out = BRIDGE_MATH_FAST;
    if (args_text_or_none(request->function, "math", request->math, &text) < 0) {
        return -1;
    }
    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (bridge_math)i; /* BRIDGE_MATH_FAST and so on, in this order */
            return 0;
        }
    }
    if (text == NULL) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s: math must be 'fast', 'relaxed' or 'safe', not '%s'.",
                 request->function, text);
    return -1;
}

/* The text for Metal's compiler: with the defines, the name and what it includes.  Owned (+1). */
static PyObject *
compose_source(const kernel_source *request)
{
    const char *unused;
    if (!PyUnicode_Check(request->source)) {
        (void)args_refuse_type(request->function, "source", "a str", request->source);
        return NULL;
    }
    if (args_text(request->function, "source", request->source, &unused) < 0) {
        return NULL;
    }
    PyObject *name = args_is_given(request->name) ? request->name : Py_None;
    PyObject *defines = args_is_given(request->defines) ? request->defines : Py_None;
    PyObject *include = args_is_given(request->include) ? request->include : Py_None;
    PyObject *options = PyTuple_Pack(3, name, defines, include);
    PyObject *text =
        options == NULL ? NULL : call_python(CALL_SOURCE_COMPOSE, request->source, options);
    Py_XDECREF(options);
    return text;
}

bridge_library *
kernel_source_compile(md_state *state, const kernel_source *request,
                      const device_record *device)
{
    bridge_math math;
    PyObject *text = read_math(request, &math) < 0 ? NULL : compose_source(request);
    const char *source = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    bridge_library *library = NULL;
    if (source != NULL) {
        char *message = NULL;
        bool is_source = false;
        bridge_status status;
        Py_BEGIN_ALLOW_THREADS
        status =
            bridge_library_new(device->handle, source, math, &library, &message, &is_source);
        Py_END_ALLOW_THREADS
        if (status != BRIDGE_OK) {
            kernel_source_raise(state, request->function, status, message, is_source);
        }
    }
    Py_XDECREF(text);
    return library;
}
