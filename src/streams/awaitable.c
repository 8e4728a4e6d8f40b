/* awaitable.c: see awaitable.h.
 *
 * Owns:    nothing.
 * Calls:   metal_dlpack.awaiting, imported at the first use: it imports asyncio.
 * Threads: the GIL is held.
 */
#include "streams/awaitable.h"

#include "python/args.h"
#include "streams/stream_current.h"

PyObject *
awaitable_call(const char *function, PyObject *const *args, size_t count)
{
    PyObject *module = PyImport_ImportModule("metal_dlpack.awaiting");
    PyObject *callable = module == NULL ? NULL : PyObject_GetAttrString(module, function);
    PyObject *result =
        callable == NULL ? NULL : PyObject_Vectorcall(callable, args, count, NULL);
    Py_XDECREF(callable);
    Py_XDECREF(module);
    return result;
}

const char stream_aenter_doc[] =
    "__aenter__($self, /)\n--\n\n"
    "Make it the current stream of this asyncio task, as `with stream:` does.\n\n"
    "Returns\n-------\n"
    "Awaitable\n    It gives the Stream.";

PyObject *
stream_aenter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return awaitable_call("enter", &op, 1);
}

const char stream_aexit_doc[] =
    "__aexit__($self, type, value, traceback, /)\n--\n\n"
    "Make the stream current that was before; then await the stream's work, and block no "
    "thread.\n"
    "If the block raised, it does not wait.\n\n"
    "Raises\n------\n"
    "MetalError\n    Work of the stream failed, and no wait has raised it yet.\n"
    "RuntimeError\n    This task has entered another stream since, or never this one.";

/* The block is left here, or an allocation that fails before the await would keep it open. */
PyObject *
stream_aexit(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const args_spec spec = {
        "Stream.__aexit__", 3, 3, 3, {"type", "value", "traceback", NULL}};
    PyObject *values[3];
    PyObject *left = args_parse(&spec, args, nargs, kwnames, values) < 0
                         ? NULL
                         : stream_exit(op, args, nargs, kwnames);
    if (left == NULL) {
        return NULL;
    }
    Py_DECREF(left);
    return awaitable_call("leave", (PyObject *[]){op, values[0]}, 2);
}
