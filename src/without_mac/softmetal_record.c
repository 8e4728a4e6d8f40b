/* softmetal_record.c: tells softmetal/report/ what ran on the software Metal and what was found.
 *
 * Calls:   softmetal/report/recording.py, with plain values; recorder.h.
 * Threads: any, without the GIL, which is taken.  What Python raises is dropped: the launch is none
 *          of a report's.
 */
#include "without_mac/without_mac.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernel_call.h"
#include "kernels/kernel_object.h"
#include "python/call_python.h"
#include "softmetal/checker/recorder.h"
#include "without_mac/softmetal_turn.h"

/* False: Python answers with False.  Steals `values`; NULL: an exception is set. */
static bool
tell(call_python_name name, PyObject *values)
{
    PyObject *result = values == NULL ? NULL : call_python(name, values, NULL);
    bool is_true = result != Py_False; /* also if nobody could be told */
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(values);
    return is_true;
}

/* The name of a scalar or a vector, which is written into `name`; NULL: it is none. */
static const char *
type_name(unsigned data_type, char name[METAL_TYPE_NAME_MAX])
{
    metal_type type = metal_type_of(data_type);
    if (type.lanes == 0 || type.columns > 0) {
        return NULL;
    }
    metal_type_write_name(&type, name);
    return name;
}

/* None, or what a memory is. */
static PyObject *
make_memory(const soft_found_memory *memory, const soft_image *image)
{
    const soft_argument_facts *facts = soft_found_facts(image, memory);
    if (!memory->is_known) {
        return Py_NewRef(Py_None);
    }
    char name[METAL_TYPE_NAME_MAX];
    return Py_BuildValue("{s:s,s:z,s:I,s:n,s:I,s:z}", "kind",
                         memory->is_variable              ? "threadgroup variable"
                         : soft_found_is_texture(memory)  ? "texture"
                         : soft_found_is_resource(memory) ? "resource"
                         : memory->is_device              ? "buffer"
                                                          : "threadgroup argument",
                         "name", soft_found_name(image, memory), "index",
                         soft_found_is_texture(memory)    ? memory->number - SOFT_FIRST_TEXTURE
                         : soft_found_is_resource(memory) ? memory->number - SOFT_FIRST_RESOURCE
                                                          : memory->number,
                         "nbytes", (Py_ssize_t)memory->nbytes, "item_nbytes",
                         facts == NULL ? 0 : facts->nbytes, "type",
                         facts == NULL ? NULL : type_name(facts->data_type, name));
}

/* [(line, thread, threadgroup, does it write)] */
static PyObject *
make_places(const soft_recorded_finding *told)
{
    const soft_finding *finding = told->finding;
    PyObject *places = PyList_New(finding->count);
    for (int i = 0; places != NULL && i < finding->count; i++) {
        const soft_at *at = &finding->at[i];
        PyObject *place =
            Py_BuildValue("(N(III)(III)O)",
                          PyUnicode_DecodeUTF8(told->lines[i],
                                               (Py_ssize_t)strlen(told->lines[i]), "replace"),
                          at->thread[0], at->thread[1], at->thread[2], at->group[0],
                          at->group[1], at->group[2],
                          finding->is_write[i] ? Py_True : Py_False);
        if (place == NULL) {
            Py_CLEAR(places);
            break;
        }
        PyList_SET_ITEM(places, i, place);
    }
    return places;
}

static bool
tell_finding(const soft_recorded_finding *told)
{
    softmetal_turn turn;
    if (!softmetal_turn_begin(&turn)) {
        return true; /* unreached: nobody asks then */
    }
    const soft_finding *finding = told->finding;
    const soft_found_memory *memory = &finding->memory;
    bool is_news =
        tell(CALL_REPORT_FINDING,
             Py_BuildValue("{s:s,s:N,s:s,s:s,s:N,s:N,s:L,s:n,s:K,s:K,s:K,s:O,s:O}", "kernel",
                           told->kernel, "image", PyUnicode_DecodeFSDefault(told->image_path),
                           "kind", soft_found_word(finding->kind), "text", told->text, "places",
                           make_places(told), "memory", make_memory(memory, told->image),
                           "offset", (long long)finding->offset, "nbytes",
                           (Py_ssize_t)finding->nbytes, "first",
                           (unsigned long long)finding->first, "second",
                           (unsigned long long)finding->second, "times",
                           (unsigned long long)finding->times, "silenced",
                           told->is_silenced ? Py_True : Py_False, "advice",
                           finding->is_advice ? Py_True : Py_False));
    softmetal_turn_end(&turn);
    return is_news;
}

/* [(kind, index, name, nbytes, nbytes of an item, its type)] of what is bound */
static PyObject *
make_arguments(const soft_recorded_launch *told)
{
    PyObject *arguments = PyList_New(0);
    for (uint32_t i = 0; arguments != NULL && i < told->image->argument_count; i++) {
        const soft_argument_facts *facts = &told->image->arguments[i];
        bool is_buffer = facts->kind == SOFT_ARGUMENT_BUFFER;
        bool is_threadgroup = facts->kind == SOFT_ARGUMENT_THREADGROUP;
        if (is_buffer ? told->launch->buffers[facts->index] == NULL : !is_threadgroup) {
            continue; /* textures have no items */
        }
        uint64_t nbytes = is_buffer ? told->launch->buffer_nbytes[facts->index]
                                    : told->launch->threadgroup_nbytes[facts->index];
        char name[METAL_TYPE_NAME_MAX];
        state_append(&arguments, Py_BuildValue("(sIsKIz)", is_buffer ? "buffer" : "threadgroup",
                                               (unsigned)facts->index, facts->name,
                                               (unsigned long long)nbytes, facts->nbytes,
                                               type_name(facts->data_type, name)));
    }
    return arguments;
}

static void
tell_launch(const soft_recorded_launch *told)
{
    softmetal_turn turn;
    if (!softmetal_turn_begin(&turn)) {
        return; /* unreached: nobody asks then */
    }
    const soft_u32 *grid = told->launch->grid, *group = told->launch->group;
    (void)tell(CALL_REPORT_LAUNCH,
               Py_BuildValue("{s:s,s:N,s:O,s:s,s:O,s:(III),s:(III),s:d,s:N}", "kernel",
                             told->kernel, "image", PyUnicode_DecodeFSDefault(told->image_path),
                             "checked", told->image->is_checked ? Py_True : Py_False, "runs_as",
                             told->runs_as, "done", told->is_done ? Py_True : Py_False, "grid",
                             grid[0], grid[1], grid[2], "group", group[0], group[1], group[2],
                             "seconds", (double)told->ns / 1e9, "arguments",
                             make_arguments(told)));
    softmetal_turn_end(&turn);
}

static PyObject *
record(PyObject *Py_UNUSED(module), PyObject *value)
{
    static const softmetal_recorder recorder = {tell_finding, tell_launch};
    int is_on = PyObject_IsTrue(value);
    if (is_on < 0) {
        return NULL;
    }
    softmetal_set_recorder(is_on ? &recorder : NULL);
    kernel_calls_are_told = is_on;
    Py_RETURN_NONE;
}

/* Atomic, once a process. */
static int exit_status;

/* After Python's own end: what C registered for exit runs as ever, once. */
static void
end_process(void)
{
    exit(exit_status);
}

static PyObject *
exit_with(PyObject *Py_UNUSED(module), PyObject *value)
{
    long status = PyLong_AsLong(value);
    if (status == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (exit_status == 0 && status != 0 && Py_AtExit(end_process) < 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "_softmetal_exit_with: Py_AtExit has no room left.");
        return NULL;
    }
    exit_status = (int)status;
    Py_RETURN_NONE;
}

PyMethodDef softmetal_record_functions[] = {
    {"_softmetal_exit_with", exit_with, METH_O,
     PyDoc_STR("_softmetal_exit_with($module, status, /)\n--\n\n"
               "Let a process whose Python ends by itself have this exit status.")},
    {"_softmetal_record", record, METH_O,
     PyDoc_STR("_softmetal_record($module, on, /)\n--\n\n"
               "Tell softmetal.report.recording of each launch and finding, or nobody.")},
    {NULL, NULL, 0, NULL},
};
