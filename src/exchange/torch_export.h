/* torch_export.h: may our Metal memory go to torch?
 *
 * Rule:    DLPack's data on Metal is the MTLBuffer.  A torch that takes it for an address would
 *          read and write other memory, and is refused.  metal_dlpack/torch_memory.py finds out
 *          what torch does, once; after that each check reads one flag of the state.
 * Threads: the GIL is held.
 */
#ifndef MD_TORCH_EXPORT_H
#define MD_TORCH_EXPORT_H

#include "python/state.h"

/* Before an export to a type that may be torch's.  -1 with BufferError. */
int torch_check_type(md_state *state, PyTypeObject *type);

/* Before __dlpack__ answers.  torch's from_dlpack is known by the frame that called; nobody
 * else is refused.  -1 with BufferError. */
int torch_check_asker(md_state *state);

#endif /* MD_TORCH_EXPORT_H */
