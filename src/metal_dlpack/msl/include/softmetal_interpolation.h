/* softmetal_interpolation.h: metal_common: mix, saturate, sign, smoothstep, step.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: every function is pure.
 */
#ifndef SOFTMETAL_INTERPOLATION_H
#define SOFTMETAL_INTERPOLATION_H

#include "softmetal_math.h"

namespace softmetal {
SOFTMETAL_INLINE constexpr float smooth(float t) { return t * t * (3 - 2 * t); }
} // namespace softmetal

namespace metal {
SOFTMETAL_FLOATS(1, saturate, fmin(fmax(a, 0.0f), 1.0f))
SOFTMETAL_FLOATS(1, sign, a > 0 ? 1.0f : a < 0 ? -1.0f : isnan(a) ? 0.0f : a)
SOFTMETAL_FLOATS(2, step, b < a ? 0.0f : 1.0f)
SOFTMETAL_FLOATS(3, mix, a + (b - a) * d)
SOFTMETAL_FLOATS(3, smoothstep, softmetal::smooth(saturate((d - a) / (b - a))))
} // namespace metal

#endif /* SOFTMETAL_INTERPOLATION_H */
