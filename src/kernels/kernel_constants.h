/* kernel_constants.h: the values of a kernel's function constants.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_KERNEL_CONSTANTS_H
#define MD_KERNEL_CONSTANTS_H

#include "kernels/kernel_numbers.h"
#include "metal_bridge.h"

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

#endif /* MD_KERNEL_CONSTANTS_H */
