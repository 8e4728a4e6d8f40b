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

static const char *const math_names[] = {[BRIDGE_MATH_SAFE] = "safe",
                                         [BRIDGE_MATH_RELAXED] = "relaxed",
                                         [BRIDGE_MATH_FAST] = "fast"};

static int
read_math(const kernel_source *request, bridge_math *out)
{
    const char *text;
    *out = BRIDGE_MATH_SAFE;
    if (args_text_or_none(request->function, "math", request->math, &text) < 0) {
        return -1;
    }
    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, math_names[i]) == 0) {
            *out = (bridge_math)i;
            return 0;
        }
    }
    if (text == NULL) {
        return 0;
    }
    return errors_raise(PyExc_ValueError,
                        "%s: math must be 'safe', 'relaxed' or 'fast', not '%s'.",
                        request->function, text);
}

/* Metal's versions.  What Metal does with a number that means none is not documented. */
static const char *const language_names[] = {"2.0", "2.1", "2.2", "2.3", "2.4",
                                             "3.0", "3.1", "3.2", "4.0", "4.1"};

static unsigned
language_number(const char *text)
{
    for (size_t i = 0; i < sizeof language_names / sizeof language_names[0]; i++) {
        if (strcmp(text, language_names[i]) == 0) {
            return BRIDGE_LANGUAGE(text[0] - '0', text[2] - '0');
        }
    }
    return 0;
}

static int
read_language(const kernel_source *request, unsigned *out)
{
    const char *text;
    *out = 0;
    if (args_text_or_none(request->function, "language", request->language, &text) < 0) {
        return -1;
    }
    if (text == NULL) {
        return 0;
    }
    *out = language_number(text);
    if (*out == 0) {
        return errors_raise(
            PyExc_ValueError,
            "%s: language must be a version of Metal's from '2.0' to '4.1', such "
            "as '3.1', not '%s'.",
            request->function, text);
    }
    unsigned newest = bridge_language_newest();
    if (newest != 0 && *out > newest) {
        return errors_raise(PyExc_ValueError,
                            "%s: language '%s' is newer than this system's Metal has (%u.%u); "
                            "leave language= out to get the newest.",
                            request->function, text, newest >> 16, newest & 0xffff);
    }
    return 0;
}

/* The text for Metal's compiler: with the defines, the name and what it includes.  Owned (+1). */
static PyObject *
compose_source(const kernel_source *request, const char *math)
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
    PyObject *options = Py_BuildValue("(OOOs)", name, defines, include, math);
    PyObject *text =
        options == NULL ? NULL : call_python(CALL_SOURCE_COMPOSE, request->source, options);
    Py_XDECREF(options);
    return text;
}

PyObject *
kernel_source_text(const kernel_source *request, bridge_compile_options *chosen)
{
    bool is_read = read_math(request, &chosen->math) == 0 &&
                   read_language(request, &chosen->language) == 0;
    return is_read ? compose_source(request, math_names[chosen->math]) : NULL;
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

/* The value for a constant, by its name or its index: owned (+1).  0: there is none. */
static int
find_value(PyObject *given, const bridge_constant_facts *facts, PyObject **out)
{
    PyObject *keys[] = {PyUnicode_FromString(facts->name),
                        PyLong_FromUnsignedLong(facts->index)};
    int result = keys[0] == NULL || keys[1] == NULL ? -1 : 0;
    *out = NULL;
    for (int i = 0; i < 2 && result == 0; i++) {
        *out = Py_XNewRef(PyDict_GetItemWithError(given, keys[i]));
        result = *out != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(keys[0]);
    Py_XDECREF(keys[1]);
    return result;
}

/* "'align_M' (bool), 'rows' (uint)", of all or of those that must have a value: owned (+1). */
static PyObject *
describe(const bridge_constant_facts *facts, size_t count, bool is_all)
{
    PyObject *text = PyUnicode_FromString(count == 0 ? "none" : "");
    const char *before = "";
    for (size_t i = 0; text != NULL && i < count; i++) {
        char name[METAL_TYPE_NAME_MAX];
        if (!is_all && !facts[i].is_required) {
            continue;
        }
        metal_type type = metal_type_of(facts[i].data_type);
        metal_type_write_name(&type, name);
        Py_SETREF(text,
                  PyUnicode_FromFormat("%U%s'%s' (%s)", text, before, facts[i].name, name));
        before = ", ";
    }
    return text;
}

static int
refuse(PyObject *kernel_name, const char *format, PyObject *given,
       const bridge_constant_facts *facts, size_t count, bool is_all)
{
    PyObject *known = describe(facts, count, is_all);
    if (known != NULL) {
        PyErr_Format(PyExc_TypeError, format, kernel_name, given, known);
        Py_DECREF(known);
    }
    return -1;
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
read_values(PyObject *kernel_name, PyObject *given, const bridge_constant_facts *facts,
            size_t count, kernel_constants *out)
{
    char *bytes = (char *)(out->values + count);
    for (size_t i = 0; i < count; i++) {
        PyObject *value;
        int is_given = find_value(given, &facts[i], &value);
        if (is_given == 0 && facts[i].is_required) {
            return refuse(kernel_name,
                          "Library.kernel: %R cannot be made with the constants %R; it needs "
                          "values for %U.",
                          given, facts, count, false);
        }
        int result = is_given != 1 ? is_given
                                   : add_value(kernel_name, value, &facts[i], out,
                                               bytes + i * KERNEL_NUMBER_MAX);
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    if ((size_t)PyDict_GET_SIZE(given) != out->count) {
        return refuse(kernel_name,
                      "Library.kernel: %R does not have all of the constants %R; it has %U.",
                      given, facts, count, true);
    }
    out->key = make_key(out);
    return out->key == NULL ? -1 : 0;
}

int
kernel_constants_read(PyObject *kernel_name, PyObject *given,
                      const bridge_constant_facts *facts, size_t count, kernel_constants *out)
{
    *out = (kernel_constants){0};
    if (args_is_given(given) && !PyDict_Check(given)) {
        return args_refuse_type("Library.kernel", "constants", "a dict of values by name",
                                given);
    }
    PyObject *values = args_is_given(given) ? Py_NewRef(given) : PyDict_New();
    /* one byte more: there may be none */
    out->values = PyMem_Malloc(count * (sizeof(bridge_constant) + KERNEL_NUMBER_MAX) + 1);
    int result = values == NULL ? -1 : 0;
    if (out->values == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    if (result == 0) {
        result = read_values(kernel_name, values, facts, count, out);
    }
    Py_XDECREF(values);
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
