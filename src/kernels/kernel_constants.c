/* kernel_constants.c: the values of a kernel's function constants; see kernel_object.h.
 *
 * Owns:    one block a reading: the values, and behind them their bytes.
 */
#include "kernels/kernel_object.h"

#include "python/args.h"

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

/* "'align_M' (bool), 'rows' (uint)": owned (+1). */
static PyObject *
describe(const bridge_constant_facts *facts, size_t count)
{
    PyObject *text = PyUnicode_FromString(count == 0 ? "none" : "");
    for (size_t i = 0; text != NULL && i < count; i++) {
        char name[METAL_TYPE_NAME_MAX];
        metal_type type = metal_type_of(facts[i].data_type);
        metal_type_write_name(&type, name);
        Py_SETREF(text, PyUnicode_FromFormat("%U%s'%s' (%s)", text, i == 0 ? "" : ", ",
                                             facts[i].name, name));
    }
    return text;
}

static int
refuse(PyObject *kernel_name, const char *format, PyObject *given,
       const bridge_constant_facts *facts, size_t count)
{
    PyObject *known = describe(facts, count);
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
                          given, facts, count);
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
                      given, facts, count);
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
