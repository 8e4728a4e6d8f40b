/* errors.h: faults of the lower floors as Python exceptions, each a full sentence.
 *
 * Owns:    the two exception classes of the package.
 * Threads: the GIL is held.
 * Result:  every function sets exactly one exception and returns NULL, so that a caller can
 *          write `return errors_...(...)`.
 */
#ifndef MD_ERRORS_H
#define MD_ERRORS_H

#include "layout.h"
#include "state.h"

/* Makes the classes into `state`.  0, or -1 with an exception set. */
int errors_make_classes(PyObject *module, md_state *state);

/* "<where>: <text of the fault>."  IndexError for an index, ValueError for the rest;
 * CopyRequiredError for a view that cannot be. */
PyObject *errors_from_layout(md_state *state, const char *where, const layout_fault *fault);

/* CopyRequiredError with a formatted sentence (PyUnicode_FromFormat's letters). */
PyObject *errors_copy_required(md_state *state, const char *format, ...);

#endif /* MD_ERRORS_H */
