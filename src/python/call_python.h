/* call_python.h: what the package's Python modules do for the C code.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_CALL_PYTHON_H
#define MD_CALL_PYTHON_H

#include "python/state.h"

/* X(C name, module, function): every Python function that our C calls, and
 * the only place where C names one.  ARCHITECTURE.md draws these arrows. */
#define CALL_PYTHON_LIST(X) \
    X(CALL_AWAIT_ENTER, "metal_dlpack.awaiting", "enter") \
    X(CALL_AWAIT_LEAVE, "metal_dlpack.awaiting", "leave") \
    X(CALL_AWAIT_EVENT, "metal_dlpack.awaiting", "wait_for") \
    X(CALL_AWAIT_FOREIGN_EVENT, "metal_dlpack.awaiting", "wait_for_foreign") \
    X(CALL_SYNC_WAYS, "metal_dlpack.sync", "ways_of") \
    X(CALL_TORCH_POINTERS, "metal_dlpack.torch_facts", "pointers") \
    X(CALL_TORCH_NEGATED, "metal_dlpack.torch_facts", "is_negated") \
    X(CALL_ABSENT_TEXT, "metal_dlpack.absent_names", "text_of") \
    X(CALL_REFUSED_TARGET, "metal_dlpack.refusals", "of_target") \
    X(CALL_REFUSED_EXPORT, "metal_dlpack.refusals", "of_numpy") \
    X(CALL_SOURCE_COMPOSE, "metal_dlpack.kernel_source", "compose") \
    X(CALL_SOURCE_INSTANTIATE, "metal_dlpack.language.templates", "instantiate") \
    X(CALL_KERNEL_ORDER, "metal_dlpack.language.signatures", "order") \
    X(CALL_SOURCE_ERROR, "metal_dlpack.compile_errors", "error_of") \
    X(CALL_ARRAY_TEXT, "metal_dlpack.looking.text", "describe_array") \
    X(CALL_ARRAY_REDUCE, "metal_dlpack.pickling", "reduce_array") \
    X(CALL_ARRAY_FLAGS, "metal_dlpack.numpy_attributes", "ArrayFlags") \
    X(CALL_COUNT, "softmetal", "_count") \
    X(CALL_DEVICE, "metal_dlpack._core", "_device") \
    X(CALL_HTML, "metal_dlpack.notebook", "html_of") \
    X(CALL_MSL_FUNCTIONS, "softmetal.msl.for_softmetal", "functions") \
    X(CALL_MSL_IMAGE, "softmetal.msl.for_softmetal", "image") \
    X(CALL_MSL_LINES, "softmetal.msl.for_softmetal", "lines") \
    X(CALL_REPORT_SILENCED, "softmetal.report.silences", "silenced") \
    X(CALL_REPORT_CALL, "softmetal.report.recording", "call") \
    X(CALL_REPORT_FINDING, "softmetal.report.recording", "finding") \
    X(CALL_REPORT_LAUNCH, "softmetal.report.recording", "launch")

#define CALL_PYTHON_AS_ENUM(name, module, function) name,
typedef enum { CALL_PYTHON_LIST(CALL_PYTHON_AS_ENUM) } call_python_name;
#undef CALL_PYTHON_AS_ENUM

/* The function, whose module is imported when it is first needed: owned (+1). */
PyObject *call_python_find(call_python_name name);

/* `function(op, argument)`, of which a NULL ends the arguments: owned (+1). */
PyObject *call_python(call_python_name name, PyObject *op, PyObject *argument);

/* The method `_repr_html_` of every type that has one; metal_dlpack/notebook/ tells them apart. */
PyObject *call_python_repr_html(PyObject *op, PyObject *unused);
extern const char call_python_repr_html_doc[];

#define CALL_PYTHON_REPR_HTML \
    {"_repr_html_", call_python_repr_html, METH_NOARGS, call_python_repr_html_doc}

#endif /* MD_CALL_PYTHON_H */
