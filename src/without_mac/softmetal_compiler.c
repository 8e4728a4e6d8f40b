/* softmetal_compiler.c: gives the software Metal its compiler.
 *
 * Calls:   softmetal/msl/for_softmetal.py, softmetal/report/silences.py; compiler.h.
 * Threads: any, best without the GIL, which is taken: in whatever interpreter the thread belongs
 *          to, since texts go in and come out, and no object stays.
 */
#include "without_mac/without_mac.h"

#include <stdlib.h>
#include <string.h>

#include "python/call_python.h"
#include "python/errors.h"
#include "softmetal/compiler.h"
#include "softmetal/settings.h"
#include "without_mac/softmetal_turn.h"

#define ERROR_INTERNAL 2 /* MTLLibraryErrorInternal */

/* ---- answers ---- */

static void
fail(soft_compile_error *error, int code, const char *text)
{
    *error = (soft_compile_error){code, strdup(text)};
}

/* With a str, or without any (NULL): what has no UTF-8, such as a path, comes escaped. */
static void
fail_saying(soft_compile_error *error, int code, PyObject *text)
{
    PyObject *utf8 =
        text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    fail(error, code, utf8 == NULL ? "The compiler failed." : PyBytes_AS_STRING(utf8));
    PyErr_Clear();
    Py_XDECREF(utf8);
}

/* The exception that is set goes into `*error`.  One that asks the program to stop, Ctrl-C, is
 * raised again in the main thread as soon as that runs Python: without a text, the caller of
 * the bridge knows nothing, and may ask again. */
static void
fail_by_exception(soft_compile_error *error)
{
    bool is_interrupt = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyObject *exception = errors_take();
    PyObject *text = PyObject_Repr(exception);
    *error = (soft_compile_error){ERROR_INTERNAL, NULL};
    if (!is_interrupt) {
        fail_saying(error, ERROR_INTERNAL, text);
    }
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(exception);
    if (is_interrupt) {
        PyErr_SetInterrupt(); /* last: the frames' finalizers run Python, and would lose it */
    }
}

/* What stands behind the 0 of an answer: owned (+1).  NULL: `*error` is filled.  Steals `answer`. */
static PyObject *
take_answer(PyObject *answer, soft_compile_error *error)
{
    PyObject *found;
    int code;
    if (answer == NULL || !PyArg_ParseTuple(answer, "iO", &code, &found)) {
        fail_by_exception(error);
        Py_XDECREF(answer);
        return NULL;
    }
    if (code != 0) {
        fail_saying(error, code, found);
        Py_DECREF(answer);
        return NULL;
    }
    Py_INCREF(found);
    Py_DECREF(answer);
    return found;
}

/* ---- what a text holds ---- */

/* False with an exception. */
static bool
add_constant(soft_functions *functions, PyObject *constant)
{
    const char *name, *type;
    unsigned index;
    int is_required;
    if (!PyArg_ParseTuple(constant, "ssIp", &name, &type, &index, &is_required)) {
        return false;
    }
    if (!soft_functions_add_constant(functions, name, type, index, is_required)) {
        PyErr_Format(PyExc_ValueError, "the function constant %s has the unknown type %s", name,
                     type);
        return false;
    }
    return true;
}

static bool
add_function(soft_functions *functions, PyObject *function)
{
    const char *name;
    unsigned type;
    PyObject *constants;
    if (!PyArg_ParseTuple(function, "sIO!", &name, &type, &PyList_Type, &constants)) {
        return false;
    }
    if (!soft_functions_add(functions, name, type)) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(constants); i++) {
        if (!add_constant(functions, PyList_GET_ITEM(constants, i))) {
            return false;
        }
    }
    return true;
}

/* NULL with an exception.  Steals `list`. */
static soft_functions *
read_functions(PyObject *list)
{
    soft_functions *functions = soft_functions_new();
    bool is_good = functions != NULL;
    if (functions == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; is_good && i < PyList_Size(list); i++) {
        is_good = add_function(functions, PyList_GET_ITEM(list, i));
    }
    Py_DECREF(list);
    if (!is_good || PyErr_Occurred()) {
        soft_functions_free(functions);
        return NULL;
    }
    return functions;
}

/* ---- from a thread without the GIL ---- */

/* False, with `*error`: there is no interpreter any more. */
static bool
begin_turn(softmetal_turn *turn, soft_compile_error *error)
{
    bool has_begun = softmetal_turn_begin(turn);
    if (!has_begun) { /* unreached: nobody asks then */
        fail(error, ERROR_INTERNAL, "The Python that compiles kernels has ended.");
    }
    return has_begun;
}

/* ---- the compiler's three functions ---- */

/* The answer about a library, or about one `function` of it, what take_answer makes of it. */
static PyObject *
ask_about(call_python_name name, const char *source, unsigned language, PyObject *function,
          soft_compile_error *error)
{
    bool is_strict = soft_settings_get(SOFT_LEGALITY) != 0;
    PyObject *library = Py_BuildValue("(sIN)", source, language, PyBool_FromLong(is_strict));
    PyObject *answer = library == NULL ? NULL : call_python(name, library, function);
    Py_XDECREF(library);
    return take_answer(answer, error);
}

static soft_functions *
open_text(const char *source, unsigned language, soft_compile_error *error)
{
    softmetal_turn turn;
    if (!begin_turn(&turn, error)) {
        return NULL;
    }
    PyObject *list = ask_about(CALL_MSL_FUNCTIONS, source, language, NULL, error);
    soft_functions *functions = list == NULL ? NULL : read_functions(list);
    if (list != NULL && functions == NULL) {
        fail_by_exception(error);
    }
    softmetal_turn_end(&turn);
    return functions;
}

/* [(index, bytes)]; NULL with an exception. */
static PyObject *
make_constants(const soft_constant_value *values, size_t count)
{
    PyObject *constants = PyList_New(0);
    for (size_t i = 0; constants != NULL && i < count; i++) {
        state_append(&constants,
                     Py_BuildValue("(Iy#)", values[i].index, (const char *)values[i].bytes,
                                   (Py_ssize_t)values[i].nbytes));
    }
    return constants;
}

static char *
compile_text(const char *source, unsigned language, const char *function,
             const soft_constant_value *values, size_t count, bool is_counting,
             soft_compile_error *error)
{
    softmetal_turn turn;
    if (!begin_turn(&turn, error)) {
        return NULL;
    }
    bool is_checked = soft_settings_get(SOFT_KERNEL_CHECK) != 0;
    PyObject *asked = Py_BuildValue("(sNNN)", function, make_constants(values, count),
                                    PyBool_FromLong(is_checked), PyBool_FromLong(is_counting));
    PyObject *path = asked == NULL ? take_answer(NULL, error)
                                   : ask_about(CALL_MSL_IMAGE, source, language, asked, error);
    PyObject *bytes = path == NULL ? NULL : PyUnicode_EncodeFSDefault(path);
    char *copy = bytes == NULL ? NULL : strdup(PyBytes_AS_STRING(bytes));
    if (path != NULL && copy == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        fail_by_exception(error);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(path);
    Py_XDECREF(asked);
    softmetal_turn_end(&turn);
    return copy;
}

static bool
is_bytes_of(PyObject *answer, size_t nbytes)
{
    return answer != NULL && PyBytes_Check(answer) &&
           (size_t)PyBytes_GET_SIZE(answer) == nbytes;
}

static void
name_lines(const char *image_path, const uint64_t *addresses, size_t count,
           char (*lines)[SOFT_LINE_NBYTES], char (*shown)[SOFT_LINE_NBYTES], bool *is_silenced)
{
    softmetal_turn turn;
    if (!softmetal_turn_begin(&turn)) {
        return; /* unreached: nobody asks then */
    }
    PyObject *path = PyUnicode_DecodeFSDefault(image_path);
    PyObject *image =
        path == NULL ? NULL : Py_BuildValue("(On)", path, (Py_ssize_t)SOFT_LINE_NBYTES);
    PyObject *asked = PyBytes_FromStringAndSize((const char *)addresses,
                                                (Py_ssize_t)(count * sizeof *addresses));
    PyObject *rows =
        image == NULL || asked == NULL ? NULL : call_python(CALL_MSL_LINES, image, asked);
    bool is_good = is_bytes_of(rows, count * SOFT_LINE_NBYTES);
    if (is_good) {
        memcpy(lines, PyBytes_AS_STRING(rows), count * SOFT_LINE_NBYTES);
        memcpy(shown, lines, count * SOFT_LINE_NBYTES);
    }
    PyObject *answer = is_good ? call_python(CALL_REPORT_SILENCED, image, rows) : NULL;
    if (is_bytes_of(answer, count * (SOFT_LINE_NBYTES + 1))) {
        const char *told = PyBytes_AS_STRING(answer);
        for (size_t i = 0; i < count; i++) {
            is_silenced[i] = told[i] != 0;
        }
        memcpy(shown, told + count, count * SOFT_LINE_NBYTES);
    }
    PyErr_Clear(); /* the report stands without them */
    Py_XDECREF(answer);
    Py_XDECREF(rows);
    Py_XDECREF(asked);
    Py_XDECREF(image);
    Py_XDECREF(path);
    softmetal_turn_end(&turn);
}

int
softmetal_compiler_install(PyObject *Py_UNUSED(module))
{
    static const softmetal_compiler compiler = {open_text, compile_text, name_lines};
    softmetal_set_compiler(&compiler);
    return 0;
}
