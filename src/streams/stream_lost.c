/* stream_lost.c: see stream_lost.h.
 *
 * Owns:    nothing; stream.c keeps the failures.
 * Calls:   stream.h for them, state.h for the interpreter's module.
 * Threads: `ask_for_report` on any, without the GIL, and never waiting; the report on the main
 *          one.
 */
#include "streams/stream_lost.h"

#include "metal/stream.h"
#include "python/errors.h"

static bool is_call_pending; /* atomic: Py_AddPendingCall has been told */

static int
report(void *Py_UNUSED(context))
{
    __atomic_store_n(&is_call_pending, false, __ATOMIC_RELEASE);
    md_state *state = state_of_interpreter();
    /* imported elsewhere only, or being cleared */
    if (state == NULL || state->metal_error == NULL) {
        /* unreached: no test makes it fail here */
        PyErr_Clear();
        return 0;
    }
    bridge_error error;
    while (stream_take_lost(&error)) {
        (void)errors_from_bridge(state, "GPU work that nobody waited for",
                                 BRIDGE_COMMAND_FAILED, &error, 0);
        PyErr_WriteUnraisable((PyObject *)state->stream_type);
    }
    return 0;
}

static void
ask_for_report(void)
{
    if (!Py_IsInitialized() || __atomic_exchange_n(&is_call_pending, true, __ATOMIC_ACQ_REL)) {
        return;
    }
    if (Py_AddPendingCall(report, NULL) < 0) { /* unreached: the queue is full */
        /* The interpreter's queue is full: the next one lost takes this one along. */
        __atomic_store_n(&is_call_pending, false, __ATOMIC_RELEASE);
    }
}

void
stream_lost_watch(void)
{
    stream_on_lost(ask_for_report);
}
