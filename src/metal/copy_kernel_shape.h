/* copy_kernel_shape.h: what a kernel of copy_kernel.h is told; the struct, in C and in Metal's
 * language at once, as that file has it.
 */
/* clang-format off */
COPY_KERNEL_TEXT(

typedef struct copy_kernel_shape {
    int64_t dst_first;      /* the unit where element 0 goes to */
    int64_t src_first;
    int64_t dst_steps[66];  /* axis 0 is the one that is densest in the destination */
    int64_t src_steps[66];
    uint32_t extents[66];
    uint32_t naxes;         /* at least 2 */
} copy_kernel_shape;

)
/* clang-format on */
