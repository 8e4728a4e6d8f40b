/* torch_queue.h: torch's own command queues on macOS, through the functions that its library
 * exports: three private functions, which metal_dlpack/sync.py puts together.
 *
 * Threads: the GIL is held; released while torch's dispatch queue is waited for.
 */
#ifndef MD_TORCH_QUEUE_H
#define MD_TORCH_QUEUE_H

#include "python/state.h"

extern PyMethodDef torch_queue_functions[];

#endif /* MD_TORCH_QUEUE_H */
