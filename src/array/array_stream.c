/* array_stream.c: Array.__metal_stream__, what to wait for. */
#include "array/array.h"

#include "array/array_methods.h"
#include "metal/work.h"
#include "python/errors.h"
#include "streams/stream_protocol.h"

const char array_doc_metal_stream[] =
    "__metal_stream__($self, /)\n--\n\n"
    "What to wait for on the GPU before using the buffer.\n\n"
    "Returns\n-------\n"
    "tuple of int\n"
    "    (version, queue, event, value): 1, the id<MTLCommandQueue> that last worked on the "
    "buffer or the\n"
    "    default stream's, the id<MTLSharedEvent> and the value it has once our work in flight "
    "on the\n"
    "    buffer is done; 0, which every event has reached, if there is none.  Borrowed from\n"
    "    the stream.\n\n"
    "Raises\n------\nMetalError\n    Metal gave no queue or command buffer.\n\n"
    "Source: docs/metal_stream.md.";

PyObject *
array_method_metal_stream(PyObject *op, PyObject *Py_UNUSED(unused))
{
    metal_storage *storage = array_storage(array_cast(op));
    metal_stream *stream = stream_default(storage->device);
    stream_mark mark = {0};
    bridge_status status = stream_default_status();
    if (stream != NULL) {
        Py_BEGIN_ALLOW_THREADS
        status = work_mark_storage(stream, storage, &mark);
        Py_END_ALLOW_THREADS
    }
    if (status != BRIDGE_OK) { /* unreached: no test makes it fail here */
        return errors_from_bridge(state_of(op), "Array.__metal_stream__", status, NULL, 0);
    }
    PyObject *answer = stream_protocol_answer(mark.stream, mark.value);
    stream_release(mark.stream);
    return answer;
}
