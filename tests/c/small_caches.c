/* small_caches.c: stands in for copy_caches.c and tells of caches so small that small copies
 * take every road. */
#include "copy/copy_plan.h"

static const copy_caches small = {.first_nbytes = 2048, .second_nbytes = 4096};

const copy_caches *
copy_caches_get(void)
{
    return &small;
}
