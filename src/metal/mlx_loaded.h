/* mlx_loaded.h: is MLX's library for Metal in this process?
 *
 * Why:     MLX's command buffers retain nothing that they use, so that no retain count tells of its
 *          work; and it can let go of a tensor while the GPU still writes to it.
 * Threads: any, without the GIL.
 * Source:  mlx backend/metal/device.cpp, commandBufferWithUnretainedReferences; backend/metal/eval.cpp,
 *          which takes a donated output off what the completion handler keeps; mlx#1863.
 */
#ifndef MD_MLX_LOADED_H
#define MD_MLX_LOADED_H

#include <stdbool.h>

/* True from the moment on that it is loaded.  Asks the loader only if something else was loaded
 * since it was asked last. */
bool mlx_is_loaded(void);

#endif /* MD_MLX_LOADED_H */
