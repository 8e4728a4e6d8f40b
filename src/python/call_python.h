/* call_python.h: what the package's Python modules do for the C code.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_CALL_PYTHON_H
#define MD_CALL_PYTHON_H

#include "python/state.h"

/* `module_name.function(op, argument)`, of which a NULL ends the arguments: owned (+1). */
PyObject *call_python(const char *module_name, const char *function, PyObject *op,
                      PyObject *argument);

/* The method `_repr_html_` of every type that has one; metal_dlpack/notebook/ tells them apart. */
PyObject *call_python_repr_html(PyObject *op, PyObject *unused);
extern const char call_python_repr_html_doc[];

#define CALL_PYTHON_REPR_HTML \
    {"_repr_html_", call_python_repr_html, METH_NOARGS, call_python_repr_html_doc}

#endif /* MD_CALL_PYTHON_H */
