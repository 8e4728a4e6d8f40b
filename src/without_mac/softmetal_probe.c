/* softmetal_probe.c: counts and reports of the software Metal, for tests.
 *
 * Calls:   softmetal.h only.
 * Threads: the GIL is held.
 */
#include "without_mac/without_mac.h"

#include "array/array.h"
#include "python/args.h"
#include "softmetal/softmetal.h"

static PyObject *
probe_live_objects(PyObject *Py_UNUSED(module), PyObject *value)
{
    const char *name;
    if (args_text_or_none("softmetal", "name", value, &name) < 0) {
        return NULL;
    }
    return PyLong_FromSize_t(softmetal_live_objects(name));
}

static PyObject *
probe_reports(PyObject *Py_UNUSED(module), PyObject *value)
{
    const char *kind;
    if (args_text_or_none("softmetal", "kind", value, &kind) < 0) {
        return NULL;
    }
    return PyLong_FromSize_t(softmetal_reports(kind));
}

static PyObject *
probe_last_report(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    char text[4096] = "";
    (void)softmetal_last_report(text, sizeof text);
    return PyUnicode_FromString(text);
}

static PyObject *
probe_wait_idle(PyObject *Py_UNUSED(module), PyObject *value)
{
    int64_t timeout_ms;
    if (args_int64("_softmetal_wait_idle", "timeout_ms", value, &timeout_ms) < 0) {
        return NULL;
    }
    int is_idle = WITHOUT_GIL(softmetal_wait_idle(timeout_ms < 0 ? 0 : (uint64_t)timeout_ms));
    return PyBool_FromLong(is_idle);
}

ARGS_FUNCTION(probe_set, Py_UNUSED(module), "_softmetal_set", 2, 2, 2, "name", "value")
{
    const char *name, *value;
    if (args_text_or_none("softmetal", "name", values[0], &name) < 0 ||
        args_text_or_none("softmetal", "value", values[1], &value) < 0) {
        return NULL;
    }
    if (name == NULL || softmetal_set(name, value) < 0) {
        return PyErr_Format(PyExc_ValueError,
                            "The software Metal has no setting %R that can be %R; "
                            "docs/softmetal.md lists them.",
                            values[0], values[1]);
    }
    Py_RETURN_NONE;
}

static PyObject *
probe_unwritten(PyObject *module, PyObject *array)
{
    if (!Py_IS_TYPE(array, state_of_module(module)->array_type)) {
        return PyErr_Format(PyExc_TypeError, "_softmetal_unwritten: an Array, not %.100s.",
                            Py_TYPE(array)->tp_name);
    }
    array_tell_unwritten(array_cast(array), true);
    Py_RETURN_NONE;
}

static PyObject *
probe_resident_nbytes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromSize_t(softmetal_resident_nbytes());
}

PyMethodDef softmetal_probe_functions[] = {
    {"_softmetal_resident_nbytes", probe_resident_nbytes, METH_NOARGS,
     PyDoc_STR("_softmetal_resident_nbytes($module, /)\n--\n\n"
               "Bytes of residency sets that are wired now, those that are lost among them.")},
    {"_softmetal_unwritten", probe_unwritten, METH_O,
     PyDoc_STR("_softmetal_unwritten($module, array, /)\n--\n\n"
               "The next kernel is the first that writes its items; the checker watches that "
               "it does.")},
    {"_softmetal_live_objects", probe_live_objects, METH_O,
     PyDoc_STR("_softmetal_live_objects($module, name, /)\n--\n\n"
               "How many objects of a class or protocol live; None: all.")},
    {"_softmetal_reports", probe_reports, METH_O,
     PyDoc_STR("_softmetal_reports($module, kind, /)\n--\n\n"
               "How many validation reports of a kind were made; None: all.")},
    {"_softmetal_last_report", probe_last_report, METH_NOARGS,
     PyDoc_STR("_softmetal_last_report($module, /)\n--\n\nThe last validation report's text.")},
    {"_softmetal_wait_idle", probe_wait_idle, METH_O,
     PyDoc_STR("_softmetal_wait_idle($module, timeout_ms, /)\n--\n\n"
               "Wait until no committed command buffer is left; False once the time is over.")},
    {"_softmetal_set", MD_FASTCALL(probe_set),
     PyDoc_STR("_softmetal_set($module, name, value, /)\n--\n\n"
               "Change a setting of the running software Metal; None: its default.")},
    {NULL, NULL, 0, NULL},
};
