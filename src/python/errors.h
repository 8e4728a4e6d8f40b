/* errors.h: faults of the lower floors as Python exceptions, each a full sentence.
 *
 * Owns:    the two exception classes of the package.
 * Threads: the GIL is held.
 * Result:  what is named errors_from_... sets exactly one exception and returns NULL, so that a
 *          caller can write `return errors_...(...)`.  errors_check_status does so if it must.
 */
#ifndef MD_ERRORS_H
#define MD_ERRORS_H

#include "arithmetic/layout.h"
#include "bridge/metal_bridge.h"
#include "metal/devices.h"
#include "python/state.h"

/* Makes the classes into `state`.  0, or -1 with an exception set. */
int errors_make_classes(PyObject *module, md_state *state);

/* "<where>: <text of the fault>."
 * For an Array, by its `state`: IndexError for an index, CopyRequiredError for a view that
 * cannot be, ValueError for the rest.  For a StridedLayout, with NULL for `state`, the classes
 * of cuda.core: OverflowError for what overflows, ValueError for the rest. */
__attribute__((cold)) PyObject *errors_from_layout(md_state *state, const char *where,
                                                   const layout_fault *fault);

/* CopyRequiredError with a formatted sentence (PyUnicode_FromFormat's letters). */
PyObject *errors_copy_required(md_state *state, const char *format, ...);

/* PyErr_Format for a function that returns an int: -1.  `cold`: gcc takes a path that returns -1
 * for the rare one, but this is a call. */
__attribute__((cold)) int errors_raise(PyObject *class, const char *format, ...);

/* Is the exception that is set an answer of foreign code's?  No: Ctrl-C, or that no memory is
 * left. */
static inline bool
errors_is_refusal(void)
{
    return PyErr_ExceptionMatches(PyExc_Exception) &&
           !PyErr_ExceptionMatches(PyExc_MemoryError);
}

/* What foreign code refused to answer need not be known: clear the exception.  0, or -1 with one
 * that is no answer. */
static inline int
errors_pass_over(void)
{
    if (!errors_is_refusal()) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* The exception that is set, taken away: owned (+1).  NULL: there is none. */
PyObject *errors_take(void);
/* Set it again, which is stolen; NULL: none is set. */
void errors_restore(PyObject *exception);
/* Another of the same class and arguments, without its traceback, whose frames would keep the
 * caller's objects alive: owned (+1).  NULL without an exception: the class makes none of these. */
PyObject *errors_copy(PyObject *exception);

/* storage_new refused `nbytes` on the device: MemoryError with the limit that was met. */
PyObject *errors_no_buffer(md_state *state, const char *where, bridge_status status,
                           const device_record *device, uint64_t nbytes);

/* MemoryError where Metal has no room for `nbytes`, MetalError with Metal's own text (`error`,
 * or NULL) for the rest. */
PyObject *errors_from_bridge(md_state *state, const char *where, bridge_status status,
                             const bridge_error *error, uint64_t nbytes);

/* 0 for BRIDGE_OK; -1 with that exception for any other status. */
static inline int
errors_check_status(md_state *state, const char *where, bridge_status status,
                    const bridge_error *error, uint64_t nbytes)
{
    if (status == BRIDGE_OK) {
        return 0;
    }
    (void)errors_from_bridge(state, where, status, error, nbytes);
    return -1;
}

/* 0; -1 with MetalError in a forked child.  For calls that Metal would have to answer. */
static inline int
errors_check_fork(md_state *state, const char *where)
{
    return errors_check_status(state, where, bridge_is_forked() ? BRIDGE_FORKED : BRIDGE_OK,
                               NULL, 0);
}

/* ---- the last error that our producer raised ----
 *
 * One exception a thread, in the thread's own dict, without its traceback (which would keep the
 * frames it passed, and so arrays, alive). */

/* Remember the exception that is set; it stays set.  What cannot be remembered is not. */
void refusal_note(void);

extern PyMethodDef refusal_functions[];

#endif /* MD_ERRORS_H */
