/* work_facts.c: what reprs and pictures say of GPU work and of who holds a buffer;
 * metal_dlpack/looking/text.py and metal_dlpack/sharing.py ask.
 *
 * Calls:   tracking.h and work.h to look.
 * Threads: the GIL is held.
 * Rule:    a look changes nothing: it waits for nothing, reports no failure, and gives no
 *          handle away (Buffer.handle does: the pool then counts on users of it).
 */
#include "module/module.h"

#include "array/buffer.h"
#include "metal/tracking.h"
#include "metal/work.h"
#include "streams/stream_object.h"

/* Is work in flight among the marks, or has some failed? */
static void
judge_marks(const metal_storage *storage, bool is_for_writing, bool *is_busy, bool *has_failed)
{
    stream_mark marks[TRACKING_MARKS];
    int count = tracking_copy_marks(storage->handle, is_for_writing, marks);
    *is_busy = *has_failed = false;
    for (int i = 0; i < count; i++) {
        if (marks[i].value != 0) {
            *is_busy = true;
        }
        else if (!marks[i].is_of_earlier_owner) {
            *has_failed = true;
        }
    }
    tracking_release_marks(marks, count);
}

static const char *
work_on(const metal_storage *storage)
{
    bool is_written, is_used, has_failed;
    judge_marks(storage, false, &is_written, &has_failed);
    if (is_written) {
        return "writes";
    }
    judge_marks(storage, true, &is_used, &has_failed);
    return is_used ? "reads" : has_failed ? "failed" : "idle";
}

PyDoc_STRVAR(
    buffer_work_doc,
    "_buffer_work($module, buffer, /)\n--\n\n"
    "What the GPU does with an open Buffer, and who holds it: (work, handle, views,\n"
    "references).\n\n"
    "work: 'writes' or 'reads' in flight, 'failed' (no wait has raised it yet) or 'idle'.\n"
    "views: Arrays and memoryviews.  references: of the memory, beside the Buffer's own:\n"
    "exports and work in flight.");

static PyObject *
core_buffer_work(PyObject *module, PyObject *op)
{
    if (!PyArg_Parse(op, "O!", state_of_module(module)->buffer_type, &op)) {
        return NULL;
    }
    BufferObject *self = buffer_cast(op);
    const metal_storage *storage = buffer_open_storage("_buffer_work", self);
    if (storage == NULL) {
        return NULL;
    }
    Py_ssize_t views = __atomic_load_n(&self->views, __ATOMIC_ACQUIRE);
    uint32_t refs = __atomic_load_n(&storage->refs, __ATOMIC_ACQUIRE);
    return Py_BuildValue("(sNnI)", work_on(storage), PyLong_FromVoidPtr(storage->handle), views,
                         (unsigned int)(refs - 1));
}

PyDoc_STRVAR(
    stream_work_doc,
    "_stream_work($module, stream, /)\n--\n\n"
    "How far a Stream is: (submitted, completed, has_failed), the first two counts of its\n"
    "pieces of work.");

static PyObject *
core_stream_work(PyObject *module, PyObject *op)
{
    if (!PyArg_Parse(op, "O!", state_of_module(module)->stream_type, &op)) {
        return NULL;
    }
    const metal_stream *stream = stream_cast(op);
    uint64_t submitted = work_count_submitted(stream);
    uint64_t completed = __atomic_load_n(&stream->completed, __ATOMIC_ACQUIRE);
    return Py_BuildValue("(KKN)", (unsigned long long)submitted, (unsigned long long)completed,
                         PyBool_FromLong(stream_has_failure(stream)));
}

PyMethodDef work_facts_functions[] = {
    {"_buffer_work", core_buffer_work, METH_O, buffer_work_doc},
    {"_stream_work", core_stream_work, METH_O, stream_work_doc},
    {NULL, NULL, 0, NULL},
};
