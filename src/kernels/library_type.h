/* library_type.h: the Python type `Library`, kernel(), and what goes into a library.
 *
 * Threads: the GIL is held; released while Metal compiles, which can take seconds.
 */
#ifndef MD_LIBRARY_TYPE_H
#define MD_LIBRARY_TYPE_H

#include "kernels/metal_type.h"
#include "metal/devices.h"
#include "metal_bridge.h"
#include "python/state.h"

/* kernel() of the module. */
extern PyMethodDef kernel_functions[];

/* ---- kernel_constants.c: the values of a kernel's function constants ---- */

typedef struct kernel_constants {
    bridge_constant *values; /* owned, with what they point at; NULL: none */
    size_t count;
    PyObject *key; /* owned: bytes, the same for the same values */
} kernel_constants;

/* Read `given`, a dict of values by name or index, or None.  `facts` are what the kernel has.
 * -1 with TypeError (no such constant, one that must be there is missing, not such a number) or
 * OverflowError; nothing is owned then. */
int kernel_constants_read(PyObject *kernel_name, PyObject *given,
                          const bridge_constant_facts *facts, size_t count,
                          kernel_constants *out);
void kernel_constants_free(kernel_constants *constants);

/* ---- kernel_source.c: Metal source, and what a compiler says of it ---- */

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

#endif /* MD_LIBRARY_TYPE_H */
