/* kernel_type.h: the Python types `Kernel` and `Argument`, as those who make them see them.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_KERNEL_TYPE_H
#define MD_KERNEL_TYPE_H

#include "kernels/kernel_object.h"

/* A Kernel of a pipeline: owned (+1).  It takes over `kernel`, whatever the result; `facts` stay
 * the caller's.  NULL with MemoryError, or TypeError where a parameter can be given nothing. */
PyObject *kernel_new_object(md_state *state, const device_record *device, PyObject *name,
                            bridge_kernel *kernel, const bridge_kernel_facts *facts);

/* What is known of a parameter, as an Argument: owned (+1). */
PyObject *argument_new(md_state *state, const kernel_parameter *parameter);

#endif /* MD_KERNEL_TYPE_H */
