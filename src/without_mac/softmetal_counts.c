/* softmetal_counts.c: what counted launches found, as Python's values.
 *
 * Calls:   softmetal/checker/counts.h; softmetal/counting/ makes something of it.
 * Threads: the GIL is held.
 */
#include "without_mac/without_mac.h"

#include <string.h>

#include "python/args.h"
#include "softmetal/checker/counts.h"

static int
read_tag(PyObject *value, uint64_t *tag)
{
    int64_t number;
    if (args_int64("_softmetal_count", "tag", value, &number) < 0) {
        return -1;
    }
    *tag = (uint64_t)number;
    return 0;
}

static PyObject *
ask_with_tag(PyObject *value, void (*ask)(uint64_t tag))
{
    uint64_t tag;
    if (read_tag(value, &tag) < 0) {
        return NULL;
    }
    ask(tag);
    Py_RETURN_NONE;
}

static PyObject *
counts_ask(PyObject *Py_UNUSED(module), PyObject *value)
{
    return ask_with_tag(value, soft_counts_ask);
}

static PyObject *
counts_ask_all(PyObject *Py_UNUSED(module), PyObject *value)
{
    return ask_with_tag(value, soft_counts_ask_all);
}

/* ---- a launch as tuples ---- */

/* What `make` gives for each of `count` things: owned (+1). */
static PyObject *
list_of(size_t count, PyObject *(*make)(const soft_counts *, size_t), const soft_counts *counts)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        state_append(&list, make(counts, i));
    }
    return list;
}

#define NUMBER(x) (unsigned long long)(x)

static PyObject *
memory_tuple(const soft_counts *counts, size_t index)
{
    const soft_counts_memory *one = &counts->memories[index];
    return Py_BuildValue("(siiIKKKKK)", one->name, one->is_threadgroup, one->is_variable,
                         one->number, NUMBER(one->nbytes), NUMBER(one->distinct_read),
                         NUMBER(one->distinct_written), NUMBER(one->atomics),
                         NUMBER(one->most_atomics));
}

static PyObject *
row_tuple(const soft_counts *counts, size_t index)
{
    const soft_counts_row *one = &counts->rows[index];
    return Py_BuildValue("(NIIIIIKKKKKKK)",
                         PyUnicode_DecodeUTF8(one->file, (Py_ssize_t)strlen(one->file),
                                              "replace"),
                         one->line, one->column, one->nbytes, one->how, one->memory,
                         NUMBER(one->executions), NUMBER(one->lanes), NUMBER(one->possible),
                         NUMBER(one->lines), NUMBER(one->least_lines), NUMBER(one->rounds),
                         NUMBER(one->least_rounds));
}

static PyObject *
barrier_tuple(const soft_counts *counts, size_t index)
{
    return Py_BuildValue("(IK)", counts->barriers[index].offset,
                         NUMBER(counts->barriers[index].count));
}

static PyObject *
meeting_tuple(const soft_counts *counts, size_t index)
{
    return Py_BuildValue("(IK)", counts->meetings[index].offset,
                         NUMBER(counts->meetings[index].count));
}

static PyObject *
execution_number(const soft_counts *counts, size_t index)
{
    return PyLong_FromUnsignedLongLong(counts->executions[index]);
}

/* The fields of softmetal/counting/raw_counts.py: _Raw, in order. */
static PyObject *
counts_tuple(const soft_counts *counts)
{
    return Py_BuildValue("(sN(III)(III)KKKKNNNNNs)", counts->kernel,
                         PyUnicode_DecodeFSDefault(counts->image_path), counts->grid[0],
                         counts->grid[1], counts->grid[2], counts->group[0], counts->group[1],
                         counts->group[2], NUMBER(counts->threads), NUMBER(counts->groups),
                         NUMBER(counts->simdgroups), NUMBER(counts->threadgroup_nbytes),
                         list_of(counts->memory_count, memory_tuple, counts),
                         list_of(counts->row_count, row_tuple, counts),
                         list_of(counts->barrier_count, barrier_tuple, counts),
                         list_of(counts->meeting_count, meeting_tuple, counts),
                         list_of(counts->execution_count, execution_number, counts),
                         counts->operations == NULL ? "" : counts->operations);
}

static PyObject *
counts_take(PyObject *Py_UNUSED(module), PyObject *value)
{
    uint64_t tag;
    if (read_tag(value, &tag) < 0) {
        return NULL;
    }
    soft_counts *counts = soft_counts_take(tag);
    if (counts == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *made = counts_tuple(counts);
    soft_counts_free(counts);
    return made;
}

PyMethodDef softmetal_counts_functions[] = {
    {"_softmetal_count", counts_ask, METH_O,
     PyDoc_STR("_softmetal_count($module, tag, /)\n--\n\n"
               "Kernels that this thread makes and launches are counted under a tag; 0: none "
               "are.")},
    {"_softmetal_count_all", counts_ask_all, METH_O,
     PyDoc_STR("_softmetal_count_all($module, tag, /)\n--\n\n"
               "The same of all threads, the first launch of each kernel.")},
    {"_softmetal_take_counts", counts_take, METH_O,
     PyDoc_STR("_softmetal_take_counts($module, tag, /)\n--\n\n"
               "The oldest launch of a tag that was not taken yet, or None.")},
    {NULL, NULL, 0, NULL},
};
