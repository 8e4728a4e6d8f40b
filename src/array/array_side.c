/* array_side.c: see array_side.h. */
#include "array/array_side.h"

void
array_side_close(array_side *side)
{
    Py_CLEAR(side->kept);
    view_close(&side->view);
}

void
array_side_set(array_side *side, ArrayObject *array)
{
    side->array = array;
    side->kept = NULL;
    side->view.memory.obj = NULL;
    side->dtype = array->dtype;
    side->is_readonly = array->is_readonly;
    array_get_layout(array, &side->layout);
}

bool
array_side_open_view(array_side *side, md_state *state, PyObject *value)
{
    const Py_buffer *memory = &side->view.memory;
    side->view.memory.obj = NULL;
    if (!PyObject_CheckBuffer(value)) {
        return false;
    }
    if (view_open("", value, &side->view) < 0 || memory->suboffsets != NULL ||
        memory->itemsize == 0 ||
        view_items_read(state, "", memory, &side->dtype, &side->layout) < 0) {
        PyErr_Clear(); /* whoever asks has another way, which says what is wrong */
        view_close(&side->view);
        return false;
    }
    side->array = NULL;
    side->kept = NULL;
    side->origin = memory->buf;
    side->is_readonly = memory->readonly;
    return true;
}
