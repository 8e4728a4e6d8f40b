/* kernel_source.c: what a library is made of: Metal source, and the values of function constants; see
 * kernel_object.h.
 *
 * Owns:    one block a reading of constants: the values, and behind them their bytes.
 * Calls:   metal_bridge.h to compile; metal_dlpack/kernel_source.py for what comes before that,
 *          metal_dlpack/compile_errors.py for what the compiler said.
 */
#include "kernels/kernel_object.h"

#include "python/args.h"
#include "python/call_python.h"
#include "python/errors.h"

/* ---- what the compiler said ---- */

/* CompileError of its words about a text. */
static void
raise_source_error(PyObject *words, PyObject *text)
{
    PyObject *error = call_python(CALL_SOURCE_ERROR, words, text);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
}

void
kernel_source_raise(md_state *state, const char *where, bridge_status status, char *message,
                    PyObject *text)
{
    PyObject *words = NULL;
    if (message != NULL) {
        words = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    }
    else {
        (void)PyErr_CheckSignals(); /* without words it was interrupted, by Ctrl-C as a rule */
    }
    free(message);
    if (words != NULL && text != NULL) {
        raise_source_error(words, text);
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

static PyObject *
given_or_none(PyObject *value)
{
    return value == NULL ? Py_None : value;
}

PyObject *
kernel_source_text(const kernel_source *request, bridge_compile_options *chosen)
{
    const char *unused;
    PyObject *text = NULL;
    int math;
    if (!PyUnicode_Check(request->source)) {
        (void)args_refuse_type(request->function, "source", "a str", request->source);
        return NULL;
    }
    if (args_text(request->function, "source", request->source, &unused) < 0) {
        return NULL;
    }
    PyObject *options =
        Py_BuildValue("(sIOOOOO)", request->function, bridge_language_newest(),
                      given_or_none(request->math), given_or_none(request->language),
                      given_or_none(request->name), given_or_none(request->defines),
                      given_or_none(request->include));
    PyObject *read =
        options == NULL ? NULL : call_python(CALL_SOURCE_READ, request->source, options);
    if (read != NULL && PyArg_ParseTuple(read, "UiI", &text, &math, &chosen->language)) {
        chosen->math = (bridge_math)math;
        Py_INCREF(text);
    }
    Py_XDECREF(read);
    Py_XDECREF(options);
    return text;
}

bridge_library *
kernel_source_compile(md_state *state, const char *function, const device_record *device,
                      PyObject *text, const bridge_compile_options *chosen)
{
    const char *source = PyUnicode_AsUTF8(text);
    bridge_library *library = NULL;
    if (source != NULL) {
        char *message = NULL;
        bool is_source = false;
        bridge_status status = WITHOUT_GIL(
            bridge_library_new(device->handle, source, chosen, &library, &message, &is_source));
        if (status != BRIDGE_OK) {
            kernel_source_raise(state, function, status, message, is_source ? text : NULL);
        }
    }
    return library;
}

/* ---- function constants ---- */

/* [(place in the facts, value)] of the constants that have a value: owned (+1). */
static PyObject *
choose_values(PyObject *kernel_name, PyObject *given, const bridge_constant_facts *facts,
              size_t count)
{
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        char name[METAL_TYPE_NAME_MAX];
        metal_type type = metal_type_of(facts[i].data_type);
        metal_type_write_name(&type, name);
        state_append(&rows, Py_BuildValue("(sIsO)", facts[i].name, facts[i].index, name,
                                          facts[i].is_required ? Py_True : Py_False));
    }
    PyObject *asked = rows == NULL ? NULL : PyTuple_Pack(2, given_or_none(given), rows);
    PyObject *chosen =
        asked == NULL ? NULL : call_python(CALL_KERNEL_CONSTANTS, kernel_name, asked);
    Py_XDECREF(asked);
    Py_XDECREF(rows);
    return chosen;
}

/* The bytes of one constant behind the values, and that in the list. */
static int
add_value(PyObject *kernel_name, PyObject *value, const bridge_constant_facts *facts,
          kernel_constants *out, char *bytes)
{
    metal_type type = metal_type_of(facts->data_type);
    PyObject *subject =
        PyUnicode_FromFormat("Library.kernel: constant '%s' of %R", facts->name, kernel_name);
    const char *where = subject == NULL ? NULL : PyUnicode_AsUTF8(subject);
    int result = where == NULL ? -1 : kernel_numbers_pack(where, &type, value, bytes);
    Py_XDECREF(subject);
    out->values[out->count++] = (bridge_constant){facts->index, facts->data_type, bytes};
    return result;
}

/* Values in the order of the facts: index, bytes, index, bytes.  Owned (+1). */
static PyObject *
make_key(const kernel_constants *constants)
{
    size_t row = sizeof(unsigned) + KERNEL_NUMBER_MAX;
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(constants->count * row));
    for (size_t i = 0; key != NULL && i < constants->count; i++) {
        char *at = PyBytes_AS_STRING(key) + i * row;
        memcpy(at, &constants->values[i].index, sizeof(unsigned));
        memcpy(at + sizeof(unsigned), constants->values[i].value, KERNEL_NUMBER_MAX);
    }
    return key;
}

static int
read_values(PyObject *kernel_name, PyObject *chosen, const bridge_constant_facts *facts,
            kernel_constants *out)
{
    char *bytes = (char *)(out->values + PyList_GET_SIZE(chosen));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(chosen); i++) {
        PyObject *value;
        Py_ssize_t place;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(chosen, i), "nO", &place, &value) ||
            add_value(kernel_name, value, &facts[place], out, bytes + i * KERNEL_NUMBER_MAX) <
                0) {
            return -1;
        }
    }
    out->key = make_key(out);
    return out->key == NULL ? -1 : 0;
}

int
kernel_constants_read(PyObject *kernel_name, PyObject *given,
                      const bridge_constant_facts *facts, size_t count, kernel_constants *out)
{
    *out = (kernel_constants){0};
    /* most kernels have none, and each call of lib.name comes here */
    bool has_none = !args_is_given(given) && count == 0;
    PyObject *chosen =
        has_none ? PyList_New(0) : choose_values(kernel_name, given, facts, count);
    int result = -1;
    if (chosen != NULL) {
        /* one byte more: there may be none */
        out->values = PyMem_Malloc((size_t)PyList_GET_SIZE(chosen) *
                                       (sizeof(bridge_constant) + KERNEL_NUMBER_MAX) +
                                   1);
        result = out->values != NULL ? read_values(kernel_name, chosen, facts, out)
                                     : (PyErr_NoMemory(), -1);
    }
    Py_XDECREF(chosen);
    if (result < 0) {
        kernel_constants_free(out);
    }
    return result;
}

void
kernel_constants_free(kernel_constants *constants)
{
    PyMem_Free(constants->values);
    Py_CLEAR(constants->key);
    constants->values = NULL;
    constants->count = 0;
}
