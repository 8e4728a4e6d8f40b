/* small_grids.c: the grids of copy_kernel.c once more, so small that most copies take several. */
#define COPY_MOST_CALLS 23
#define copy_kernel_source small_kernel_source
#define copy_kernels small_kernels
#define copy_grid_kernel small_grid_kernel
#define copy_grid_make small_grid_make
#define copy_grid_halve small_grid_halve
#include "metal/copy_kernel.c"
