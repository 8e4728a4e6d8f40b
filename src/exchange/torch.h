/* torch.h: torch: which may take our memory for an address, and whose command queues on macOS wait
 * for us and we for them.
 *
 * Rule:    DLPack's data on Metal is the MTLBuffer.  A torch that takes it for an address would
 *          read and write other memory, and is refused: found out once, without a command on the
 *          GPU, by how torch holds its own memory and ours.
 * Threads: the GIL is held; released while torch's dispatch queue is waited for.
 * Source:  pytorch#190373 would make `data` the address; no release up to 2.15 has it.
 */
#ifndef MD_TORCH_H
#define MD_TORCH_H

#include "array/array.h"

/* Before an export to torch.  -1 with BufferError.  Once it is right, one flag is read. */
int torch_check_memory(md_state *state, const char *function);

/* The same before __dlpack__ answers, where the state's torch_is_checked is not set yet.  torch's
 * from_dlpack is known by the frame that called; nobody else is refused. */
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
