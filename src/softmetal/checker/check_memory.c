/* check_memory.c: which memory is the kernel's: its views, its threadgroup memory.
 *
 * Owns:    the shadows of a launch, one for each run of bytes that views share.
 * Calls:   check_shadow.h.
 * Threads: the OS thread that runs the launch.
 * Note:    an address has no memory of the pointer that it came from: one view's overrun that ends
 *          inside another view is not seen here.
 */
#include "softmetal/checker/check_state.h"

#include <stdio.h>
#include <string.h>

#include "softmetal/fiber.h"

/* An address so far from everything is nobody's overrun. */
#define FARTHEST ((uintptr_t)64 << 20)
#define NULL_PAGE ((uintptr_t)4096)

static const soft_argument_facts *
facts_of(const soft_check *check, soft_argument_kind kind, uint32_t index)
{
    const soft_image *image = check->launch.image;
    for (uint32_t i = 0; i < image->argument_count; i++) {
        if (image->arguments[i].kind == kind && image->arguments[i].index == index) {
            return &image->arguments[i];
        }
    }
    return NULL;
}

void
soft_memory_name(const soft_check *check, const soft_range *range, char text[SOFT_NAME_NBYTES])
{
    if (range->is_variable) {
        snprintf(text, SOFT_NAME_NBYTES, "a threadgroup variable");
        return;
    }
    bool is_device = range->memory == SOFT_DEVICE_MEMORY;
    const soft_argument_facts *facts =
        facts_of(check, is_device ? SOFT_ARGUMENT_BUFFER : SOFT_ARGUMENT_THREADGROUP,
                 range->number);
    snprintf(text, SOFT_NAME_NBYTES, "%s %u (%.100s)",
             is_device ? "buffer" : "threadgroup argument", range->number,
             facts == NULL ? "?" : facts->name);
}

/* ---- views ---- */

static void
add_view(soft_check *check, uint32_t index)
{
    const soft_launch *launch = check->launch.launch;
    const soft_argument_facts *facts = facts_of(check, SOFT_ARGUMENT_BUFFER, index);
    if (launch->buffers[index] == NULL || facts == NULL) {
        return;
    }
    check->ranges[check->view_count++] = (soft_range){
        .base = (uintptr_t)launch->buffers[index],
        .nbytes = check->launch.launch->buffer_nbytes[index],
        .memory = SOFT_DEVICE_MEMORY,
        .is_writable = facts->is_written,
        .number = index,
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
 * stays without cells if none of them may be written: then there is nothing to race with. */
static void
open_shadow(soft_check *check, soft_range *view)
{
    soft_shadow *shadow = &check->shadows[check->shadow_count++];
    uintptr_t low = view->base, high = view->base + view->nbytes;
    unsigned alignment = 16;
    bool has_grown = true, is_writable = false;
    while (has_grown) {
        has_grown = false;
        for (soft_range *other = check->ranges; other < check->ranges + check->view_count;
             other++) {
            if (other->shadow == NULL &&
                (other == view || (other->base < high && other->base + other->nbytes > low))) {
                const soft_argument_facts *facts =
                    facts_of(check, SOFT_ARGUMENT_BUFFER, other->number);
                other->shadow = shadow;
                is_writable |= other->is_writable;
                low = smaller(low, other->base);
                high = larger(high, other->base + other->nbytes);
                alignment = (unsigned)smaller(alignment, facts->alignment);
                has_grown = true;
            }
        }
    }
    if (is_writable) {
        soft_shadow_open(shadow, low, high - low, alignment);
    }
}

void
soft_memory_open(soft_check *check)
{
    check->shadow_count = 1;
    for (uint32_t index = 0; index < SOFT_MOST_BUFFERS; index++) {
        add_view(check, index);
    }
    check->range_count = check->view_count;
    for (int i = 0; i < check->view_count; i++) {
        if (check->ranges[i].shadow == NULL) {
            open_shadow(check, &check->ranges[i]);
        }
    }
}

void
soft_memory_close(soft_check *check)
{
    for (int i = 0; i < check->shadow_count; i++) {
        soft_shadow_close(&check->shadows[i]);
    }
}

/* ---- what is none's ---- */

/* "byte 4000", "bytes 4000 to 4003" */
static void
name_bytes(intptr_t first, size_t nbytes, char *text, size_t size)
{
    if (nbytes == 1) {
        snprintf(text, size, "byte %td", first);
    }
    else {
        snprintf(text, size, "bytes %td to %td", first, first + (intptr_t)nbytes - 1);
    }
}

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

SOFT_ON_FIBER void
soft_memory_describe(const soft_check *check, uintptr_t at, size_t nbytes, soft_u32 how,
                     char text[SOFT_TEXT_NBYTES])
{
    bool is_write = (how & SOFT_ACCESS_WRITE) != 0;
    const char *does = is_write ? "a thread writes" : "a thread reads";
    const soft_range *constant = range_of(check, at, nbytes, is_write);
    /* In an emulator, buffers can lie a few megabytes above a null pointer. */
    const soft_range *range = at < NULL_PAGE ? NULL : nearest(check, at, nbytes);
    char name[SOFT_NAME_NBYTES], bytes[64];
    if (constant != NULL) {
        soft_memory_name(check, constant, name);
        snprintf(text, SOFT_TEXT_NBYTES, "%s %s, which it declares const", does, name);
    }
    else if (range != NULL) {
        soft_memory_name(check, range, name);
        name_bytes((intptr_t)(at - range->base), nbytes, bytes, sizeof bytes);
        snprintf(text, SOFT_TEXT_NBYTES, "%s outside its memory: %s of %s, which has %zu bytes",
                 does, bytes, name, range->nbytes);
    }
    else if (at < NULL_PAGE) {
        snprintf(text, SOFT_TEXT_NBYTES, "%s through a null pointer", does);
    }
    else {
        snprintf(text, SOFT_TEXT_NBYTES,
                 "%s outside its memory: %zu bytes at 0x%zx are none of its buffers'", does,
                 nbytes, (size_t)at);
    }
}

SOFT_ON_FIBER void
soft_memory_describe_misaligned(const soft_check *check, uintptr_t at, size_t alignment,
                                char text[SOFT_TEXT_NBYTES])
{
    const soft_range *range = range_of(check, at, 1, false);
    char name[SOFT_NAME_NBYTES], where[SOFT_NAME_NBYTES + 30] = "memory of its own";
    if (range != NULL) {
        soft_memory_name(check, range, name);
        snprintf(where, sizeof where, "byte %zu of %s", (size_t)(at - range->base), name);
    }
    snprintf(
        text, SOFT_TEXT_NBYTES,
        "a thread uses %s by a type that lies at multiples of %zu bytes: the address is %zu "
        "past one",
        where, alignment, at % alignment);
}
