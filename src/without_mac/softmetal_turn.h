/* softmetal_turn.h: Python, asked from a thread of the software Metal, for as long as a call takes.
 *
 * Calls:   errors.h for the exception that is set.
 * Threads: any, best without the GIL, which is taken: in whatever interpreter the thread belongs to.
 */
#ifndef MD_SOFTMETAL_TURN_H
#define MD_SOFTMETAL_TURN_H

#include "python/errors.h"

typedef struct softmetal_turn {
    PyGILState_STATE gil;
    PyObject *exception; /* the one that was set; owned */
} softmetal_turn;

static inline bool
softmetal_turn_has_interpreter(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

/* False: there is no interpreter any more, and nothing is to end. */
static inline bool
softmetal_turn_begin(softmetal_turn *turn)
{
    if (!softmetal_turn_has_interpreter()) { /* unreached: nobody asks then */
        return false;
    }
    turn->gil = PyGILState_Ensure();
    turn->exception = errors_take();
    return true;
}

static inline void
softmetal_turn_end(softmetal_turn *turn)
{
    errors_restore(turn->exception);
    PyGILState_Release(turn->gil);
}

#endif /* MD_SOFTMETAL_TURN_H */
