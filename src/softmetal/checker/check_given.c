/* check_given.c: what an argument was given against its parameter: another type, or a strided tensor.
 *
 * The caller knows that, and Metal does not; it is told where the kernel first uses the argument,
 * so that a use that is meant is not: of a few bytes by a cast, by an atomic (sums of halves and of longs
 * go by words), of the tensor's items alone.
 *
 * Owns:    nothing.
 * Calls:   check_state.h.
 * Threads: the OS thread that runs the launch.
 */
#include "softmetal/checker/check_state.h"

#include "softmetal/fiber.h"

const soft_given *
soft_given_find(const soft_launch *launch, uint32_t index)
{
    const soft_given *given = launch->given;
    while (given != NULL && given->index != index) {
        given = given->next;
    }
    return given;
}

/* Is this byte of the view none of an item's? */
SOFT_ON_FIBER static bool
is_gap(const soft_given *given, size_t offset)
{
    for (int axis = 0; axis < given->axes; axis++) {
        size_t last = given->steps[axis][0] - 1, step = given->steps[axis][1];
        size_t index = offset / step;
        offset -= (index < last ? index : last) * step;
    }
    return offset >= given->item_nbytes;
}

/* Several views over these bytes: which one is used is not known. */
SOFT_ON_FIBER static bool
is_shared(const soft_check *check, uintptr_t at, size_t nbytes)
{
    int views = 0;
    for (int i = 0; i < check->view_count; i++) {
        const soft_range *view = &check->ranges[i];
        views += at < view->base + view->nbytes && view->base < at + nbytes;
    }
    return views > 1;
}

SOFT_ON_FIBER static bool
is_meant(const soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
         soft_u32 how)
{
    const soft_given *given = range->given;
    if (given->axes > 0) {
        size_t offset = at - range->base;
        return !is_gap(given, offset) || !is_gap(given, offset + nbytes - 1) ||
               is_shared(check, at, nbytes);
    }
    const soft_argument_facts *facts =
        soft_facts_find(check->launch.image, SOFT_ARGUMENT_BUFFER, range->number);
    bool is_cast = nbytes < facts->alignment;
    return is_cast || (how & SOFT_ACCESS_ATOMIC) != 0;
}

SOFT_ON_FIBER void
soft_given_access(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                  soft_u32 how, soft_site *site)
{
    if (range->given == NULL || is_meant(check, range, at, nbytes, how)) {
        return;
    }
    soft_finding found = {
        .kind = range->given->is_strided ? SOFT_FOUND_STRIDES : SOFT_FOUND_TYPE,
        .is_write = {(how & SOFT_ACCESS_WRITE) != 0},
        .memory = soft_range_found(range),
        .offset = (int64_t)(at - range->base),
        .nbytes = range->given->axes > 0 ? nbytes : 0,
        .given = range->given->text,
        .at = {soft_at_thread(check, check->watch->thread, site->code)},
        .count = 1,
    };
    (void)soft_findings_add(&check->findings, &found);
    check->ranges[range - check->ranges].given = NULL;
}
