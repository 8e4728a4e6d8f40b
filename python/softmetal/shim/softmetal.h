/* softmetal.h: Metal's standard library for a CPU; all of it.
 *
 * Owns:    nothing.
 * Calls:   the run time, through softmetal_image.runtime, and libm.
 * Threads: see softmetal_kernel.h.
 *
 * For clang 17 and later, x86-64 and arm64, with no header of the system,
 * with the flags of ../flags.py and, for a checked image, softmetal_checked.cpp.
 */
#ifndef SOFTMETAL_H
#define SOFTMETAL_H

#include "softmetal_atomics.h"
#include "softmetal_geometric.h"
#include "softmetal_image.h"
#include "softmetal_integers.h"
#include "softmetal_kernel.h"
#include "softmetal_math.h"
#include "softmetal_matrices.h"
#include "softmetal_names.h"
#include "softmetal_packing.h"
#include "softmetal_samplers.h"
#include "softmetal_simdgroup_matrix.h"
#include "softmetal_simdgroups.h"
#include "softmetal_synchronization.h"
#include "softmetal_textures.h"
#include "softmetal_types.h"
#include "softmetal_vectors.h"

#endif /* SOFTMETAL_H */
