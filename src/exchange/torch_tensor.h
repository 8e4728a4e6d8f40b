/* torch_tensor.h: may the memory of a torch tensor be taken as its value?
 *
 * Rule:    torch's exchange table exports any memory.  torch's __dlpack__ refuses conjugated
 *          tensors, whose memory is not their value, and those that require grad, which must
 *          not be written without torch; it overlooks negated ones.
 * Threads: the GIL is held.
 * Source:  torch/_tensor.py, Tensor.__dlpack__.
 */
#ifndef MD_TORCH_TENSOR_H
#define MD_TORCH_TENSOR_H

#include <dlpack/dlpack.h>

#include "python/state.h"

/* The C function behind an attribute of the type's instances: static.  NULL: there is none. */
const struct PyGetSetDef *torch_getter(PyTypeObject *type, PyObject *attribute);

/* Ask before the tensor is made.  1: call __dlpack__, which refuses; 0: use the table; -1
 * with an exception. */
int torch_must_ask(const foreign_type *slot, PyObject *op);

/* Ask afterwards.  1: the memory is the value; 0: call __dlpack__ instead; -1 with
 * BufferError, or what torch raised. */
int torch_check_tensor(md_state *state, PyObject *op, const DLTensor *tensor);

#endif /* MD_TORCH_TENSOR_H */
