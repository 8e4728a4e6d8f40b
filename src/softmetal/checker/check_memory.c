/* check_memory.c: which memory is the kernel's: its views, its threadgroup memory.
 *
 * Owns:    the ranges and the shadows of a launch, one for each run of bytes that views share.
 * Calls:   check_shadow.h.
 * Threads: the OS thread that runs the launch.
 * Note:    an address has no memory of the pointer that it came from: one view's overrun that ends
 *          inside another view is not seen here.
 */
#include "softmetal/checker/check_state.h"

#include <stdlib.h>

#include "arithmetic/pixel_format.h"
#include "softmetal/fiber.h"

/* An address so far from everything is nobody's overrun. */
#define FARTHEST ((uintptr_t)64 << 20)
#define NULL_PAGE ((uintptr_t)4096)

/* ---- views ---- */

static void
add_view(soft_check *check, uint32_t index)
{
    const soft_launch *launch = check->launch.launch;
    const soft_argument_facts *facts =
        soft_facts_find(check->launch.image, SOFT_ARGUMENT_BUFFER, index);
    if (launch->buffers[index] == NULL || facts == NULL) {
        return;
    }
    soft_fresh *fresh = launch->fresh == NULL ? NULL : launch->fresh[index];
    const char *base = (const char *)launch->buffers[index] - launch->buffer_before[index];
    size_t nbytes = launch->buffer_nbytes[index];
    check->ranges[check->view_count++] = (soft_range){
        .base = (uintptr_t)base,
        .nbytes = nbytes,
        .memory = SOFT_DEVICE_MEMORY,
        .is_writable = facts->is_written,
        .fresh = soft_fresh_first(fresh, base, nbytes) == NULL ? NULL : fresh,
        .number = index,
        .given = soft_given_find(launch, index),
    };
}

/* What an item of it begins at a multiple of: a texture's is a pixel. */
static unsigned
alignment_of(const soft_check *check, const soft_range *range)
{
    const soft_launch *launch = check->launch.launch;
    for (uint32_t i = 0; range->memory == SOFT_TEXTURE_MEMORY && i < launch->reached_count;
         i++) {
        if (soft_reached_number(&launch->reached[i]) == range->number) {
            return launch->reached[i].pixel_nbytes;
        }
    }
    const soft_argument_facts *facts =
        soft_facts_find(check->launch.image, SOFT_ARGUMENT_BUFFER, range->number);
    return facts == NULL ? 4 : facts->alignment;
}

static void
add_reached(soft_check *check, const soft_reached *reached)
{
    bool is_fresh = soft_fresh_first(reached->fresh, reached->address, reached->nbytes) != NULL;
    check->ranges[check->view_count++] = (soft_range){
        .base = (uintptr_t)reached->address,
        .nbytes = reached->nbytes,
        .memory = reached->texture != NULL ? SOFT_TEXTURE_MEMORY : SOFT_DEVICE_MEMORY,
        .is_writable = reached->is_written,
        .fresh = is_fresh ? reached->fresh : NULL,
        .number = soft_reached_number(reached),
    };
}

static uintptr_t
smaller(uintptr_t a, uintptr_t b)
{
    return a < b ? a : b;
}

static uintptr_t
larger(uintptr_t a, uintptr_t b)
{
    return a > b ? a : b;
}

/* One shadow for this view and all that share bytes with it, with those that share with them.  It
 * stays without cells if none of them may be written, and all are: then there is nothing to find. */
static void
open_shadow(soft_check *check, soft_range *view)
{
    soft_shadow *shadow = &check->shadows[check->shadow_count++];
    uintptr_t low = view->base, high = view->base + view->nbytes;
    unsigned alignment = 16;
    bool has_grown = true, is_watched = false;
    while (has_grown) {
        has_grown = false;
        for (soft_range *other = check->ranges; other < check->ranges + check->view_count;
             other++) {
            if (other->shadow == NULL &&
                (other == view || (other->base < high && other->base + other->nbytes > low))) {
                other->shadow = shadow;
                is_watched |= other->is_writable || other->fresh != NULL;
                low = smaller(low, other->base);
                high = larger(high, other->base + other->nbytes);
                alignment = (unsigned)smaller(alignment, alignment_of(check, other));
                has_grown = true;
            }
        }
    }
    if (is_watched) {
        soft_shadow_open(shadow, low, high - low, alignment);
    }
}

bool
soft_memory_open(soft_check *check)
{
    const soft_launch *launch = check->launch.launch;
    size_t most = SOFT_MOST_RANGES + launch->reached_count;
    check->ranges = calloc(most, sizeof *check->ranges);
    check->shadows = calloc(most, sizeof *check->shadows);
    if (check->ranges == NULL || check->shadows == NULL) {
        return false;
    }
    check->shadow_count = 1;
    for (uint32_t index = 0; index < SOFT_MOST_BUFFERS; index++) {
        add_view(check, index);
    }
    for (uint32_t i = 0; i < launch->reached_count; i++) {
        add_reached(check, &launch->reached[i]);
    }
    check->range_count = check->view_count;
    for (int i = 0; i < check->view_count; i++) {
        if (check->ranges[i].shadow == NULL) {
            open_shadow(check, &check->ranges[i]);
        }
    }
    return true;
}

void
soft_memory_close(soft_check *check)
{
    for (int i = 0; i < check->shadow_count; i++) {
        soft_shadow_close(&check->shadows[i]);
    }
    free(check->ranges);
    free(check->shadows);
}

/* ---- what is none's ---- */

/* How far the access is from a range that it is not within. */
static uintptr_t
distance(const soft_range *range, uintptr_t at, size_t nbytes)
{
    if (at < range->base) {
        return at + nbytes < range->base ? range->base - at : 0;
    }
    return at < range->base + range->nbytes ? 0 : at - (range->base + range->nbytes);
}

static const soft_range *
nearest(const soft_check *check, uintptr_t at, size_t nbytes)
{
    const soft_range *found = NULL;
    for (const soft_range *range = check->ranges; range < check->ranges + check->range_count;
         range++) {
        if (distance(range, at, nbytes) < FARTHEST &&
            (found == NULL || distance(range, at, nbytes) < distance(found, at, nbytes))) {
            found = range;
        }
    }
    return found;
}

static bool
is_within(uintptr_t at, size_t nbytes, uintptr_t low, size_t size)
{
    return nbytes <= size && at - low <= size - nbytes;
}

/* Constants of the image, and what the run time tells each thread, may be read. */
static bool
is_readable(const soft_check *check, uintptr_t at, size_t nbytes)
{
    return is_within(at, nbytes, check->image_base, check->launch.image_nbytes) ||
           is_within(at, nbytes, check->state_low, check->state_nbytes) ||
           is_within(at, nbytes, (uintptr_t)check->launch.launch, sizeof(soft_launch)) ||
           is_within(at, nbytes, (uintptr_t)check->thread, sizeof(soft_thread));
}

/* The range that an access is within: one that may be written, if there is one. */
SOFT_ON_FIBER static const soft_range *
range_of(const soft_check *check, uintptr_t at, size_t nbytes, bool is_write)
{
    const soft_range *constant = NULL;
    for (const soft_range *range = check->ranges; range < check->ranges + check->range_count;
         range++) {
        if (is_within(at, nbytes, range->base, range->nbytes)) {
            if (range->is_writable || !is_write) {
                return range;
            }
            constant = range;
        }
    }
    return constant;
}

SOFT_ON_FIBER bool
soft_memory_find(const soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                 const soft_range **found)
{
    bool is_write = (how & SOFT_ACCESS_WRITE) != 0;
    *found = range_of(check, at, nbytes, is_write);
    return *found == NULL ? !is_write && is_readable(check, at, nbytes)
                          : !is_write || (*found)->is_writable;
}

/* An address within [low, low + nbytes) that lies in a range: its place; NULL: there is none. */
SOFT_ON_FIBER static const uint64_t *
find_address(const soft_range *range, uint64_t low, uint64_t nbytes)
{
    const uint64_t *at = (const uint64_t *)((range->base + 7) & ~(uintptr_t)7);
    const uint64_t *end = (const uint64_t *)((range->base + range->nbytes) & ~(uintptr_t)7);
    while (at < end && *at - low >= nbytes) {
        at++;
    }
    return at < end ? at : NULL;
}

/* The access is to a buffer that the launch was not told of, through an address that it was given: false, it is to
 * none, or came there by chance. */
SOFT_ON_FIBER static bool
refuse_absent(const soft_check *check, uintptr_t at, soft_finding *found)
{
    uint64_t base = 0, nbytes = 0;
    if (check->launch.launch->find_buffer != NULL) {
        nbytes = check->launch.launch->find_buffer(at, &base);
    }
    for (int i = 0; i < check->view_count; i++) {
        if (check->ranges[i].base - base < nbytes) {
            return false; /* some of it is resident: the access is outside of that */
        }
    }
    if (nbytes == 0 || !soft_memory_find_address(check, base, nbytes, found)) {
        return false;
    }
    found->kind = SOFT_FOUND_NOT_RESIDENT;
    found->first = at - base;
    found->second = nbytes;
    return true;
}

/* Where the kernel's memory has such an address: `memory` and `offset`.  False: nowhere. */
SOFT_ON_FIBER bool
soft_memory_find_address(const soft_check *check, uint64_t low, uint64_t nbytes,
                         soft_finding *found)
{
    for (int i = 0; i < check->view_count; i++) {
        const soft_range *range = &check->ranges[i];
        const uint64_t *place = find_address(range, low, nbytes);
        if (place != NULL) {
            found->memory = soft_range_found(range);
            found->offset = (int64_t)((uintptr_t)place - range->base);
            return true;
        }
    }
    return false;
}

SOFT_ON_FIBER soft_finding
soft_memory_refuse(const soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how)
{
    bool is_write = (how & SOFT_ACCESS_WRITE) != 0;
    const soft_range *range = range_of(check, at, nbytes, is_write);
    soft_found kind = SOFT_FOUND_CONST;
    soft_finding absent = {.is_write = {is_write}, .nbytes = nbytes, .count = 1};
    if (range == NULL && refuse_absent(check, at, &absent)) {
        return absent;
    }
    if (range == NULL) {
        /* In an emulator, buffers can lie a few megabytes above a null pointer. */
        range = at < NULL_PAGE ? NULL : nearest(check, at, nbytes);
        kind = range != NULL    ? SOFT_FOUND_OUTSIDE
               : at < NULL_PAGE ? SOFT_FOUND_NULL
                                : SOFT_FOUND_STRAY;
    }
    soft_finding found = {
        .kind = kind, .is_write = {is_write}, .nbytes = nbytes, .first = at, .count = 1};
    if (range != NULL) {
        found.memory = soft_range_found(range);
        found.offset = (int64_t)(at - range->base);
    }
    return found;
}

SOFT_ON_FIBER soft_finding
soft_memory_refuse_misaligned(const soft_check *check, uintptr_t at, size_t alignment)
{
    const soft_range *range = range_of(check, at, 1, false);
    soft_finding found = {.kind = SOFT_FOUND_MISALIGNED,
                          .first = at % alignment,
                          .second = alignment,
                          .count = 1};
    if (range != NULL) {
        found.memory = soft_range_found(range);
        found.offset = (int64_t)(at - range->base);
    }
    return found;
}
