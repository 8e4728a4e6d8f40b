/* managed_tensor.h: the DLPack tensors that we hand out, and their deleters.
 *
 * Owns:    one block a tensor: the managed struct, its shape and strides, and a reference to
 *          the storage.
 * Threads: the deleters run on any thread, without the GIL, during and after the interpreter's
 *          end; they never wait.  SPEC python_spec: a deleter can be called from anywhere.
 */
#ifndef MD_MANAGED_TENSOR_H
#define MD_MANAGED_TENSOR_H

#include <dlpack/dlpack.h>

#include "metal/storage.h"

/* A managed tensor over `storage`, which is retained.  `versioned` chooses the struct; a
 * legacy one has no flags.  In `*tensor`, its DLTensor, ndim is set and shape and strides
 * point to room, also for ndim 0; the caller fills these and all other members.  Owned:
 * managed_delete ends it.  NULL: out of memory. */
void *managed_new(metal_storage *storage, int ndim, bool versioned, uint64_t flags,
                  DLTensor **tensor);

/* Give our tensor to the function of an exchange table, which makes `*out` of it.  False
 * where it makes none; the tensor is deleted then, once, whether `take` has done so or not. */
bool managed_hand_over(DLManagedTensorVersioned *managed,
                       DLPackManagedTensorToPyObjectNoSync take, void **out);

/* Run the deleter of any managed tensor, ours or foreign; a NULL deleter is legal. */
void managed_delete(void *managed, bool versioned);

#endif /* MD_MANAGED_TENSOR_H */
