/* torch_tensor.h: what a torch tensor's memory does not say by itself.
 *
 * Rule:    torch's exchange table hands out any memory; torch's __dlpack__ refuses what is not
 *          the tensor's value (conjugated) or must not be written behind torch's back (with
 *          gradients), and forgets the negated.
 * Threads: the GIL is held.
 * Source:  torch/_tensor.py, Tensor.__dlpack__.
 */
#ifndef MD_TORCH_TENSOR_H
#define MD_TORCH_TENSOR_H

#include <dlpack/dlpack.h>

#include "python/state.h"

/* The C function behind an attribute of the type's instances: static.  NULL: there is none. */
const struct PyGetSetDef *torch_getter(PyTypeObject *type, PyObject *attribute);

/* Before the tensor is made.  1: __dlpack__ must be asked, which refuses; 0: the table may be;
 * -1 with an exception. */
int torch_must_ask(const foreign_type *slot, PyObject *op);

/* After.  1: the memory is the value; 0: __dlpack__ must be asked; -1 with BufferError, or
 * what torch raised. */
int torch_check_tensor(md_state *state, PyObject *op, const DLTensor *tensor);

#endif /* MD_TORCH_TENSOR_H */
