/* torch.h: torch: whose memory is not always its value, which may take our memory for an address,
 * and whose command queues on macOS wait for us and we for them.
 *
 * Rules:   torch's exchange table exports any memory.  torch's __dlpack__ refuses conjugated
 *          tensors, whose memory is not their value, and those that require grad, which must not be
 *          written without torch; it overlooks negated ones.
 *          DLPack's data on Metal is the MTLBuffer.  A torch that takes it for an address would
 *          read and write other memory, and is refused: found out once, without a command on the
 *          GPU, by how torch holds its own memory and ours.
 * Threads: the GIL is held; released while torch's dispatch queue is waited for.
 * Source:  pytorch#190373 would make `data` the address; no release up to 2.15 has it.
 */
#ifndef MD_TORCH_H
#define MD_TORCH_H

#include <dlpack/dlpack.h>

#include "array/array.h"

/* The C function behind an attribute of the type's instances: static.  NULL: there is none. */
const struct PyGetSetDef *torch_getter(PyTypeObject *type, PyObject *attribute);

/* May the tensor that torch's table made of `op` be taken?  `gradient`: of requires_grad.  1: its memory is its value.  0: call
 * __dlpack__ instead, which refuses.  -1 with BufferError, or what torch raised. */
int torch_check_tensor(md_state *state, const struct PyGetSetDef *gradient, PyObject *op,
                       const DLTensor *tensor);

/* Before an export to torch.  -1 with BufferError.  Once it is right, one flag is read. */
int torch_check_memory(md_state *state, const char *function);

/* The same before __dlpack__ answers.  torch's from_dlpack is known by the frame that called;
 * nobody else is refused. */
int torch_check_asker(md_state *state);

/* Look for the functions of torch's queue in its library, which is loaded already.  False: some are
 * missing, and the two below raise MetalError. */
bool torch_open(const char *library);

/* Make torch commit what it has encoded on its current stream: `*moment`, an Event, is owned (+1)
 * and says when all of it is finished.  -1 with MetalError. */
int torch_signal(md_state *state, PyObject **moment);

/* What torch encodes on its current stream from now on waits, on the GPU, for our work in flight on
 * the array.  -1 with MetalError. */
int torch_wait(md_state *state, ArrayObject *array);

#endif /* MD_TORCH_H */
