/* torch_queue.h: torch's own command queue on macOS, through the functions that its library
 * exports.
 *
 * Owns:    one shared event, whose values torch's queue signals.
 * Calls:   torch::mps::get_command_buffer, get_dispatch_queue and commit, and dispatch_sync_f,
 *          all found by dlsym: nothing here links to torch.  metal_bridge.h to encode.
 * Threads: any, without the GIL: torch's dispatch queue is waited for.
 * Source:  torch/include/torch/mps.h; PyTorch's tutorial on custom MPS kernels encodes inside
 *          dispatch_sync.
 */
#ifndef MD_TORCH_QUEUE_H
#define MD_TORCH_QUEUE_H

#include "metal/devices.h"

/* Look for the functions in a library that is loaded already.  False: not there, or not all of
 * them; nothing below works then.  A second call looks again. */
bool queue_torch_open(const char *library);

/* Let torch commit what it has encoded, and signal an event behind it.  `*event` is +1 and has
 * `*value` once all that torch was given so far is done. */
bridge_status queue_torch_signal(const device_record *device, bridge_event **event,
                                 uint64_t *value);
/* What torch encodes from now on waits, on the GPU, for the event. */
bridge_status queue_torch_wait(bridge_event *event, uint64_t value);

#endif /* MD_TORCH_QUEUE_H */
