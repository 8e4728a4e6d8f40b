/* array_side.c: see array_side.h. */
#include "array/array_side.h"

#include "array/view_items.h"

void
array_side_close(array_side *side)
{
    Py_CLEAR(side->kept);
    if (side->view.obj != NULL) {
        PyBuffer_Release(&side->view);
    }
}

void
array_side_set(array_side *side, ArrayObject *array)
{
    side->array = array;
    side->kept = NULL;
    side->view.obj = NULL;
    side->dtype = array->dtype;
    side->is_readonly = array->is_readonly;
    array_get_layout(array, &side->layout);
}

bool
array_side_open_view(array_side *side, md_state *state, PyObject *value)
{
    if (!PyObject_CheckBuffer(value)) {
        return false;
    }
    if (PyObject_GetBuffer(value, &side->view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear(); /* NumPy's arrays of element types that the protocol cannot name */
        side->view.obj = NULL;
        return false;
    }
    if (side->view.suboffsets != NULL || side->view.itemsize == 0 ||
        view_items_read(state, "", &side->view, &side->dtype, &side->layout) < 0) {
        PyErr_Clear(); /* whoever asks has another way, which says what is wrong */
        PyBuffer_Release(&side->view);
        return false;
    }
    side->array = NULL;
    side->kept = NULL;
    side->origin = side->view.buf;
    side->is_readonly = side->view.readonly;
    return true;
}
