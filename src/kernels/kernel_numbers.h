/* kernel_numbers.h: Python's numbers as the scalars and vectors that a kernel declares.
 *
 * Threads: the GIL is held.
 */
#ifndef MD_KERNEL_NUMBERS_H
#define MD_KERNEL_NUMBERS_H

#include "kernels/metal_type.h"
#include "python/state.h"

#define KERNEL_NUMBER_MAX 32 /* bytes of a long4 */

/* A number, or for a vector a tuple or list of one each, as Metal has it in memory: rounded to
 * nearest where the type is a narrower float.  The rest of `bytes` is 0.  `where` begins the
 * sentence.  -1 with TypeError (not such a number, 1.5 for an integer, a matrix), ValueError
 * (another count of lanes), or OverflowError (it does not fit). */
int kernel_numbers_pack(const char *where, const metal_type *type, PyObject *value,
                        char bytes[KERNEL_NUMBER_MAX]);

#endif /* MD_KERNEL_NUMBERS_H */
