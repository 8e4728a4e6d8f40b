/* stream_torch.h: torch's queue for metal_dlpack/sync.py.
 *
 * Threads: the GIL is held; released while torch's dispatch queue is waited for.
 */
#ifndef MD_STREAM_TORCH_H
#define MD_STREAM_TORCH_H

#include "python/state.h"

extern PyMethodDef stream_torch_functions[];

#endif /* MD_STREAM_TORCH_H */
