/* kernel_source.h: Metal source on its way to a library, and what a compiler says of it.
 *
 * Threads: the GIL is held; released while Metal compiles, which can take seconds.
 */
#ifndef MD_KERNEL_SOURCE_H
#define MD_KERNEL_SOURCE_H

#include "metal/devices.h"
#include "python/state.h"

/* What a user asks for; the objects are borrowed, NULL: the default. */
typedef struct kernel_source {
    const char *function; /* for errors */
    PyObject *source, *device, *name, *defines, *include, *math;
} kernel_source;

/* +1, or NULL with CompileError, MetalError, TypeError or ValueError. */
bridge_library *kernel_source_compile(md_state *state, const kernel_source *request,
                                      const device_record *device);

/* CompileError where the source is at fault, else MetalError.  Frees `message`, the compiler's
 * words, which may be NULL. */
void kernel_source_raise(md_state *state, const char *where, bridge_status status,
                         char *message, bool is_source);

#endif /* MD_KERNEL_SOURCE_H */
