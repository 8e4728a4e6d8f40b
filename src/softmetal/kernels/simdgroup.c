/* simdgroup.c: see simdgroup.h. */
#include "softmetal/kernels/simdgroup.h"

void
soft_simdgroup_begin(soft_simdgroup *simdgroup, soft_u32 lanes)
{
    simdgroup->ready = lanes;
    simdgroup->meeting = simdgroup->at_barrier = simdgroup->begun = simdgroup->met = 0;
    simdgroup->for_all = 0;
}

/* The lanes at the site that comes first, of those that need not wait for all. */
SOFT_ON_FIBER static soft_u32
lanes_of_first_site(const soft_simdgroup *simdgroup)
{
    soft_u32 lanes = 0;
    uintptr_t first = 0;
    soft_u32 left = simdgroup->meeting & ~simdgroup->for_all;
    if (left == 0) {
        left = simdgroup->meeting;
    }
    for (; left != 0; left &= left - 1) {
        soft_u32 lane = (soft_u32)__builtin_ctz(left);
        uintptr_t place = simdgroup->places[lane];
        if (lanes == 0 || place < first) {
            first = place;
            lanes = 0;
        }
        lanes |= (soft_u32)(place == first) << lane;
    }
    return lanes;
}

/* Lanes that stay bring what they gave to the half that is filled next: nobody reads it any
 * more, for whoever met before has come again since. */
SOFT_ON_FIBER static void
carry_over(soft_simdgroup *simdgroup, soft_u32 staying)
{
    soft_u32 half = simdgroup->half;
    for (; staying != 0; staying &= staying - 1) {
        soft_u32 lane = (soft_u32)__builtin_ctz(staying);
        memcpy(soft_simdgroup_place(simdgroup, half ^ 1, lane),
               soft_simdgroup_place(simdgroup, half, lane), simdgroup->nbytes[lane]);
    }
}

SOFT_ON_FIBER void
soft_simdgroup_meet(soft_simdgroup *simdgroup)
{
    soft_u32 lanes = simdgroup->meeting;
    if (simdgroup->is_divergent) {
        lanes = lanes_of_first_site(simdgroup);
        carry_over(simdgroup, simdgroup->meeting & ~lanes);
    }
    simdgroup->met = simdgroup->ready = lanes;
    simdgroup->meeting &= ~lanes;
    simdgroup->half ^= 1;
}
