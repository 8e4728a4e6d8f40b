/* seed.c: see seed.h.
 *
 * Owns:    nothing.
 * Calls:   settings.h.
 * Threads: see seed.h.
 */
#include "softmetal/seed.h"

#include "softmetal/settings.h"

soft_order
soft_seed_order(void)
{
    uint64_t seed = soft_settings_get(SOFT_SEED);
    return seed == 0            ? SOFT_ORDER_FIRST
           : seed == UINT64_MAX ? SOFT_ORDER_LAST
                                : SOFT_ORDER_RANDOM;
}

/* splitmix64, by Steele, Lea and Flood. */
uint64_t
soft_seed_random(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}
