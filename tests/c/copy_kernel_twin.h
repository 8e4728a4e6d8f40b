/* copy_kernel_twin.h: the kernels of copies, compiled as C: for programs without Python, which has the
 * compiler of Metal's language, and as an oracle of what that compiler makes of the text.
 */
#ifndef COPY_KERNEL_TWIN_H
#define COPY_KERNEL_TWIN_H

#include "metal/copy_grid.h"

#define COPY_KERNEL_WRITTEN 1u /* bit i: argument i is written */

/* Every call of a kernel, one after the other. */
typedef void copy_kernel_run(void *const *arguments, const size_t grid[3]);
extern copy_kernel_run *const copy_kernel_runs[COPY_KERNEL_COUNT]; /* as copy_kernel_names */

#endif /* COPY_KERNEL_TWIN_H */
