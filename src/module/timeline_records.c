/* timeline_records.c: gives metal_dlpack/timeline/ the records of timeline.h, as plain values.
 *
 * Calls: timeline.h, place.h.
 */
#include "metal/timeline.h"

#include "exchange/dlpack_check.h"
#include "module/module.h"
#include "python/place.h"
#include "python/storage_mode.h"
#include "streams/stream_object.h"

/* What Python holds of one timeline: it is closed once and forgotten once, whoever drops it, and when. */
typedef struct {
    PyObject *module; /* owned (+1): its state counts */
    uint64_t first;
    uint64_t end; /* 0: it is open */
} opening;

static const char OPENING[] = "metal_dlpack._core.timeline";

static void
close_opening(opening *open)
{
    if (open->end == 0) {
        open->end = timeline_close();
    }
}

static void
opening_dealloc(PyObject *capsule)
{
    opening *open = PyCapsule_GetPointer(capsule, OPENING);
    close_opening(open);
    timeline_forget();
    place_end(&state_of_module(open->module)->timelines);
    Py_DECREF(open->module);
    PyMem_Free(open);
}

static PyObject *
timeline_open_records(PyObject *module, PyObject *args)
{
    size_t *timelines = &state_of_module(module)->timelines;
    Py_ssize_t capacity;
    PyObject *folders, *capsule = NULL;
    opening *open = NULL;
    if (!PyArg_ParseTuple(args, "nO!", &capacity, &PyTuple_Type, &folders) ||
        place_begin(timelines, folders) < 0) {
        return NULL;
    }
    open = PyMem_Calloc(1, sizeof *open);
    if (open == NULL || !timeline_open((size_t)capacity, &open->first)) {
        PyErr_NoMemory();
        goto error;
    }
    capsule = PyCapsule_New(open, OPENING, opening_dealloc);
    if (capsule == NULL) {
        (void)timeline_close();
        timeline_forget();
        goto error;
    }
    open->module = Py_NewRef(module);
    return capsule;
error:
    PyMem_Free(open);
    place_end(timelines);
    return NULL;
}

static PyObject *
timeline_close_records(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    opening *open = PyCapsule_GetPointer(capsule, OPENING);
    if (open == NULL) {
        return NULL;
    }
    bool was_open = open->end == 0;
    close_opening(open);
    return PyBool_FromLong(was_open);
}

/* A word of timeline.h's, or a reason's of dlpack_check.h. */
static const char *
reason_name(unsigned reason)
{
    static const char *const words[] = {"", "staged", "private"};
    return reason < TIMELINE_FAULT ? words[reason]
                                   : dlpack_fault_name(&(dlpack_fault){
                                         .code = (dlpack_fault_code)(reason - TIMELINE_FAULT)});
}

/* What timelines/records.py calls them; the first six are kinds of a Work. */
static const char *const kind_names[] = {
    [TIMELINE_COPY] = "copy",           [TIMELINE_FILL] = "fill",
    [TIMELINE_KERNEL] = "kernel",       [TIMELINE_MARK] = "mark",
    [TIMELINE_WAIT] = "wait",           [TIMELINE_OPERATOR] = "operator",
    [TIMELINE_GPU_WAITS] = "GPU waits", [TIMELINE_CPU_WAITS] = "CPU waits",
};

/* NULL: memory that is no MTLBuffer. */
static const char *
mode_name(uint32_t mode)
{
    return mode == TIMELINE_CPU ? NULL : storage_mode_name((bridge_storage)mode);
}

static PyObject *
make_record(const timeline_record *record)
{
    return Py_BuildValue(
        "(KssNsIKKKKKzzKKIddddd)", (unsigned long long)record->number, kind_names[record->kind],
        reason_name(record->reason), PyBool_FromLong(record->has_failed), record->name,
        record->stream, (unsigned long long)record->value,
        (unsigned long long)(uintptr_t)record->event, (unsigned long long)record->nbytes,
        (unsigned long long)(uintptr_t)record->dst, (unsigned long long)(uintptr_t)record->src,
        mode_name(record->dst_mode), mode_name(record->src_mode),
        (unsigned long long)record->thread, (unsigned long long)record->waiter, record->place,
        record->submitted, record->scheduled, record->started, record->ended, record->launch);
}

static PyObject *
timeline_read_records(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const opening *open = PyCapsule_GetPointer(capsule, OPENING);
    if (open == NULL) {
        return NULL;
    }
    uint64_t first = open->first, end = open->end == 0 ? timeline_end_number() : open->end;
    unsigned long long lost = 0;
    PyObject *list = PyList_New(0);
    for (uint64_t number = first; list != NULL && number < end; number++) {
        timeline_record record;
        bool is_lost;
        if (!timeline_read(number, &record, &is_lost)) {
            lost += is_lost;
            continue;
        }
        state_append(&list, make_record(&record));
    }
    return list == NULL ? NULL : Py_BuildValue("(NK)", list, lost);
}

static PyObject *
timeline_list_queues(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    timeline_queue queue;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && timeline_read_queue(i, &queue); i++) {
        state_append(&list, Py_BuildValue("(IKN)", queue.stream,
                                          (unsigned long long)(uintptr_t)queue.event,
                                          PyUnicode_DecodeUTF8(queue.label,
                                                               (Py_ssize_t)strlen(queue.label),
                                                               "replace")));
    }
    return list;
}

static PyObject *
timeline_stream(PyObject *module, PyObject *op)
{
    if (!PyArg_Parse(op, "O!", state_of_module(module)->stream_type, &op)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(stream_cast(op)->serial);
}

static PyObject *
timeline_birth_of(PyObject *Py_UNUSED(module), PyObject *op)
{
    void *buffer = PyLong_AsVoidPtr(op);
    return PyErr_Occurred() != NULL ? NULL
                                    : PyLong_FromUnsignedLongLong(timeline_birth(buffer));
}

static PyObject *
timeline_list_places(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return place_list();
}

PyMethodDef timeline_functions[] = {
    {"_timeline_open", timeline_open_records, METH_VARARGS,
     PyDoc_STR("_timeline_open($module, capacity, folders, /)\n--\n\n"
               "Record from now on; code in the folders is no user's.  Returns what the others "
               "take: when it is dropped, the records are too.")},
    {"_timeline_close", timeline_close_records, METH_O,
     PyDoc_STR("_timeline_close($module, opening, /)\n--\n\n"
               "Record no more; False: it was closed before.")},
    {"_timeline_read", timeline_read_records, METH_O,
     PyDoc_STR("_timeline_read($module, opening, /)\n--\n\n"
               "(records, how many are lost): timeline/records.py names the fields.")},
    {"_timeline_queues", timeline_list_queues, METH_NOARGS,
     PyDoc_STR("_timeline_queues($module, /)\n--\n\n[(a stream's serial, its event, its "
               "queue's label)].")},
    {"_timeline_stream", timeline_stream, METH_O,
     PyDoc_STR("_timeline_stream($module, stream, /)\n--\n\nA stream's serial.")},
    {"_timeline_birth", timeline_birth_of, METH_O,
     PyDoc_STR("_timeline_birth($module, handle, /)\n--\n\nThe number of the first record "
               "about the memory that has this MTLBuffer now.")},
    {"_timeline_places", timeline_list_places, METH_NOARGS,
     PyDoc_STR("_timeline_places($module, /)\n--\n\n[(number, file, line, function)].")},
    {NULL, NULL, 0, NULL},
};
