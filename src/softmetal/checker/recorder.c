/* recorder.c: see recorder.h. */
#include "softmetal/checker/recorder.h"

#include <stddef.h>

static const softmetal_recorder *current; /* atomic */

void
softmetal_set_recorder(const softmetal_recorder *recorder)
{
    __atomic_store_n(&current, recorder, __ATOMIC_RELEASE);
}

const softmetal_recorder *
soft_recorder_current(void)
{
    return __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}
