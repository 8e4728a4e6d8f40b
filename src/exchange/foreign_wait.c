/* foreign_wait.c: who waits for the GPU work on a tensor of another library; see foreign_types.h. */
#include "exchange/foreign_types.h"
#include "exchange/torch.h"
#include "streams/stream_protocol.h"

int
foreign_order_taker(md_state *state, PyTypeObject *type, ArrayObject *array)
{
    const foreign_type *slot = foreign_type_of(state, type);
    if (slot == NULL || !slot->has_torch_queue) {
        return slot == NULL ? -1 : 0;
    }
    return torch_wait(state, array) < 0 ? -1 : 1;
}

/* SPEC import-sync */
int
foreign_wait(md_state *state, PyObject *op, PyObject **moment)
{
    const foreign_type *slot = foreign_type_of(state, Py_TYPE(op));
    *moment = NULL;
    if (slot == NULL) {
        return -1;
    }
    if (slot->sync == NULL && slot->has_torch_queue) {
        return torch_signal(state, moment);
    }
    if (slot->sync == NULL) {
        *moment = slot->speaks_metal_stream ? Py_NewRef(op) : NULL;
        return 0;
    }
    PyObject *sync = Py_NewRef(slot->sync); /* the call can replace the slot */
    PyObject *answer = PyObject_CallOneArg(sync, op);
    Py_DECREF(sync);
    if (answer == NULL) {
        return -1;
    }
    int speaks = answer == Py_None ? 0 : stream_protocol_speaks(state, answer);
    if (speaks == 1) {
        *moment = answer;
        return 0;
    }
    Py_DECREF(answer);
    return speaks;
}
