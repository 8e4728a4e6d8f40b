/* stream_order.c: see stream_order.h. */
#include "streams/stream_order.h"

#include "python/args.h"
#include "streams/stream_object.h"

/* A Stream, or the handle of a living one's queue; `*out` is +1.  `others` names what else the
 * function takes. */
static int
convert(md_state *state, const char *function, const char *others, PyObject *value,
        metal_stream **out)
{
    *out = NULL;
    if (Py_IS_TYPE(value, state->stream_type)) {
        *out = stream_cast(value);
        stream_retain(*out);
        return 0;
    }
    if (!PyLong_Check(value) || PyBool_Check(value)) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: stream must be a Stream, the handle of its command queue (an int), %s, not "
            "%.100s.",
            function, others, Py_TYPE(value)->tp_name);
        return -1;
    }
    void *handle = PyLong_AsVoidPtr(value);
    PyErr_Clear(); /* an int that is no address is no handle either */
    *out = handle == NULL ? NULL : stream_find(handle);
    if (*out != NULL) {
        return 0;
    }
    PyErr_Format(
        PyExc_BufferError,
        "%s: stream (%R) is not the handle of a command queue that metal_dlpack knows; pass "
        "a Stream, %s.",
        function, value, others);
    return -1;
}

int
stream_convert_target(md_state *state, const char *function, PyObject *value,
                      metal_stream **out)
{
    *out = NULL;
    PyObject *entered = !args_is_given(value) ? stream_entered(state) : value;
    return entered == NULL ? 0 : convert(state, function, "or None", entered, out);
}

/* SPEC export-stream-other */
int
stream_convert_order(md_state *state, const char *function, PyObject *value, stream_order *out)
{
    *out = (stream_order){false, NULL};
    if (!args_is_given(value)) {
        return 0;
    }
    if (PyLong_Check(value) && !PyBool_Check(value)) {
        int overflow;
        out->is_ordered = PyLong_AsLongAndOverflow(value, &overflow) == -1 && overflow == 0;
    }
    return out->is_ordered ? 0
                           : convert(state, function, "None, or -1 for no synchronisation",
                                     value, &out->stream);
}
