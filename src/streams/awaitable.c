/* awaitable.c: see awaitable.h.
 *
 * Owns:    nothing.
 * Calls:   stream_current.h to leave the block, metal_dlpack.awaiting for the rest.
 * Threads: the GIL is held.
 */
#include "streams/awaitable.h"

#include "python/args.h"
#include "python/call_python.h"
#include "streams/stream_current.h"

const char stream_aenter_doc[] =
    "__aenter__($self, /)\n--\n\n"
    "Make it the current stream of this asyncio task, as `with stream:` does.\n\n"
    "Returns\n-------\n"
    "Awaitable\n    Awaiting it gives the Stream.";

PyObject *
stream_aenter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    return call_python(CALL_AWAIT_ENTER, op, NULL);
}

const char stream_aexit_doc[] =
    "__aexit__($self, type, value, traceback, /)\n--\n\n"
    "Restore the stream that was current before; then await this stream's work.  Blocks no\n"
    "thread.  If the block raised, it does not wait.\n\n"
    "Raises\n------\n"
    "MetalError\n    Work of the stream failed, and no wait has raised it yet.\n"
    "RuntimeError\n"
    "    This task has entered another stream since, or has never entered this one.";

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
    return call_python(CALL_AWAIT_LEAVE, op, values[0]);
}
