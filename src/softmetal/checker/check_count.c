/* check_count.c: see check_count.h.
 *
 * Owns:    check->count.
 * Calls:   check_memory.c, count_state.h.
 */
#include "softmetal/checker/check_count.h"

#include <stdlib.h>
#include <string.h>

#include "softmetal/checker/count_state.h"
#include "softmetal/fiber.h"

#define FEWEST 8                         /* that a site has room for */
#define MOST_TOGETHER ((size_t)16 << 20) /* of all sites: 640 MiB */
#define NO_THREAD UINT32_MAX

/* ---- the launch ---- */

static bool
is_of_others(const soft_launch *launch, const soft_range *view)
{
    for (soft_u32 i = 0; view->number >= SOFT_FIRST_RESOURCE && i < launch->reached_count;
         i++) {
        if (soft_reached_number(&launch->reached[i]) == view->number) {
            return launch->reached[i].is_foreign;
        }
    }
    return (launch->foreign >> view->number & 1) != 0;
}

static void
add_memory(soft_count *count, const soft_check *check, soft_range *range)
{
    const soft_image *image = check->launch.image;
    bool is_threadgroup = range->memory == SOFT_THREADGROUP_MEMORY;
    range->counted = (uint32_t)count->memory_count;
    soft_count_memory *made = &count->memories[count->memory_count++];
    made->base = range->base;
    /* another library's memory lies wherever its allocator put it: as if a line began there */
    bool is_foreign = !is_threadgroup && is_of_others(check->launch.launch, range);
    made->origin = is_foreign ? range->base : 0;
    soft_found_memory memory = soft_range_found(range);
    const char *name = soft_found_name(image, &memory);
    made->facts = (soft_counts_memory){
        .name = name == NULL ? "?" : (char *)name,
        .is_threadgroup = is_threadgroup,
        .is_variable = range->is_variable,
        .number = range->number,
        .nbytes = range->nbytes,
    };
}

static bool
is_alone(const soft_check *check, const soft_range *view)
{
    int sharing = 0;
    for (int i = 0; i < check->view_count; i++) {
        sharing += check->ranges[i].shadow == view->shadow;
    }
    return sharing == 1;
}

static void
forget(soft_counted *site)
{
    site->thread = NO_THREAD;
    site->room = 0;
    site->low = site->span = 0;
    site->at = site->first = NULL;
    site->range = site->rows = site->next = NULL;
    site->is_used = 0;
    if (site->once != NULL) {
        soft_once_forget(site);
    }
}

bool
soft_count_begin(soft_check *check)
{
    size_t most = SOFT_MOST_RANGES + check->launch.launch->reached_count;
    soft_count *count = check->count =
        calloc(1, sizeof *count + most * sizeof count->memories[0]);
    if (count == NULL) {
        return false;
    }
    for (soft_counted *site = check->watch->counted; site < check->watch->counted_end; site++) {
        forget(site);
    }
    size_t nbytes =
        (size_t)((char *)check->watch->executions_end - (char *)check->watch->executions);
    if (nbytes != 0) {
        memset(check->watch->executions, 0, nbytes);
    }
    for (int i = 0; i < check->view_count; i++) {
        add_memory(count, check, &check->ranges[i]);
        count->memories[i].is_lasting = is_alone(check, &check->ranges[i]);
    }
    return true;
}

/* ---- accesses that belong together ---- */

/* Memory that this access did not touch last.  False: it is not the kernel's to share. */
SOFT_ON_FIBER static bool
find_memory(soft_check *check, uintptr_t at, soft_counted *site, const void *code)
{
    const soft_range *range = site->range;
    if (at - check->stack_low < check->stack_nbytes) {
        return false;
    }
    if (check->is_overdue) {
        soft_check_stop_overdue(check, code);
    }
    if (soft_count_is_branch(site)) { /* the condition is its address */
        site->span = 2;
        return true;
    }
    if ((range == NULL || !soft_range_has(range, at, site->nbytes)) &&
        !soft_memory_find(check, at, site->nbytes, site->how, &range)) {
        soft_check_stop_at(check, soft_memory_refuse(check, at, site->nbytes, site->how), code);
    }
    if (range == NULL) {
        return false;
    }
    if (site->range != range && site->once != NULL) {
        soft_once_settle(check, site);
    }
    site->range = range;
    site->low = range->base;
    site->span = range->nbytes - site->nbytes + 1;
    return true;
}

SOFT_ON_FIBER static void
check_room(soft_check *check, const void *code, size_t more)
{
    soft_count *count = check->count;
    count->together_count += more;
    if (count->together_count > MOST_TOGETHER) {
        soft_check_stop_at(check, (soft_finding){.kind = SOFT_FOUND_NO_MEMORY, .first = 1},
                           code);
    }
}

SOFT_ON_FIBER static void
make_room(soft_check *check, soft_counted *site, const void *code)
{
    size_t used = site->room, room = used == 0 ? FEWEST : 4 * used;
    check_room(check, code, room - used);
    soft_together *made = realloc(site->first, (room + 1) * sizeof *made);
    if (made == NULL) {
        soft_check_stop_without_memory(check);
    }
    for (size_t i = used; i <= room; i++) {
        made[i] = (soft_together){.next = SOFT_NO_KEY,
                                  .step = soft_count_is_branch(site) ? 0 : site->nbytes};
    }
    site->first = made;
    site->at = made + used;
    site->room = (soft_u32)room;
}

SOFT_ON_FIBER static uint64_t *
take_list(soft_check *check, const void *code)
{
    soft_count *count = check->count;
    if (count->chunk == NULL || count->list_count == SOFT_LISTS_OF_CHUNK) {
        soft_count_lists *next = count->chunk == NULL ? count->chunks : count->chunk->next;
        if (next == NULL) {
            check_room(check, code, sizeof *next / sizeof(soft_together));
            next = malloc(sizeof *next);
            if (next == NULL) {
                soft_check_stop_without_memory(check);
            }
            next->next = NULL;
            *(count->chunk == NULL ? &count->chunks : &count->chunk->next) = next;
        }
        count->chunk = next;
        count->list_count = 0;
    }
    return count->chunk->lists[count->list_count++];
}

/* One more lane comes, by its n-th access. */
SOFT_ON_FIBER static void
add_lane(soft_check *check, soft_together *one, uintptr_t at, const void *code)
{
    soft_u32 bit = 1u << check->watch->thread % SOFT_SIMD_WIDTH;
    size_t lanes = soft_count_lanes(one->lanes);
    if (lanes == 0) { /* the step is the one of the time before: it is mostly right */
        one->first = at;
        one->next = at + one->step;
    }
    else if (one->each != NULL) {
        one->each[lanes] = at;
    }
    else if (lanes == 1 || at == one->next) {
        one->step = lanes == 1 ? at - one->first : one->step;
        one->next = at + one->step;
    }
    else {
        one->each = take_list(check, code);
        for (size_t i = 0; i < lanes; i++) {
            one->each[i] = one->first + one->step * i;
        }
        one->each[lanes] = at;
        one->next = SOFT_NO_KEY;
    }
    one->lanes |= bit;
}

SOFT_ON_FIBER void
soft_count_access(soft_check *check, uintptr_t at, soft_counted *site, const void *code)
{
    if (at - site->low >= site->span && !find_memory(check, at, site, code)) {
        return;
    }
    if (!site->is_used) {
        site->is_used = 1;
        site->next = check->count->used;
        check->count->used = site;
    }
    if (site->once != NULL) {
        site->once[check->watch->thread % SOFT_SIMD_WIDTH] = at;
        return;
    }
    if (site->first == NULL || site->at == site->first + site->room) {
        make_room(check, site, code);
    }
    add_lane(check, site->at, at, code);
    site->at += 1;
}

/* ---- summing up ---- */

SOFT_ON_FIBER static void
sum_up_each(soft_check *check, soft_counted *site)
{
    soft_together *end = site->first + site->room;
    for (soft_together *one = site->first; one < end && one->lanes != 0; one++) {
        soft_count_sum_up(check, site, one);
        one->next = SOFT_NO_KEY;
        one->each = NULL;
        one->lanes = 0;
    }
    site->thread = NO_THREAD;
}

/* All lanes of the SIMD-group have met: what they did since they met last is complete.  Where each lane
 * comes once, the next SIMD-group probably comes too: until one does not, it need not tell. */
SOFT_ON_FIBER static void
sum_up_all(soft_check *check)
{
    soft_count *count = check->count;
    soft_counted **link = &count->used;
    if (count->began == 0) {
        return;
    }
    while (*link != NULL) {
        soft_counted *site = *link;
        if (site->once != NULL && soft_once_sum_up(check, site)) {
            link = &site->next;
            continue;
        }
        if (site->once == NULL) {
            sum_up_each(check, site);
        }
        site->is_used = 0;
        *link = site->next;
    }
    count->chunk = NULL;
    count->list_count = SOFT_LISTS_OF_CHUNK;
    count->began = 0;
}

SOFT_ON_FIBER static void
settle(soft_check *check)
{
    sum_up_all(check);
    if (check->count->lacks_memory) {
        soft_check_stop_without_memory(check);
    }
}

/* ---- the threadgroup ---- */

/* In the next threadgroup something else may lie there. */
SOFT_ON_FIBER static void
forget_range(soft_check *check, soft_counted *site)
{
    if (site->once != NULL) {
        soft_once_settle(check, site);
        soft_once_foresee_none(site);
    }
    site->span = 0;
    site->range = NULL;
}

/* What is counted by address is so for one threadgroup. */
SOFT_ON_FIBER static void
end_group(soft_check *check)
{
    soft_count *count = check->count;
    sum_up_all(check);
    for (soft_counted *site = check->watch->counted; site < check->watch->counted_end; site++) {
        const soft_range *range = site->range;
        if (range != NULL && !count->memories[range->counted].is_lasting) {
            forget_range(check, site);
        }
    }
    for (size_t i = (size_t)check->view_count; i < count->memory_count; i++) {
        soft_count_memory *memory = &count->memories[i];
        if (memory->atomics != NULL) {
            memset(memory->atomics, 0, (memory->facts.nbytes / 4 + 1) * sizeof(uint32_t));
        }
    }
    if (count->given_nbytes > count->threadgroup_nbytes) {
        count->threadgroup_nbytes = count->given_nbytes;
    }
}

SOFT_ON_FIBER void
soft_count_group(soft_check *check)
{
    soft_count *count = check->count;
    soft_u32 thread_count = check->thread_count;
    end_group(check);
    settle(check);
    count->given_nbytes = 0;
    count->simdgroup = UINT32_MAX;
    count->groups += 1;
    count->threads += thread_count;
    count->simdgroups += (thread_count + SOFT_SIMD_WIDTH - 1) / SOFT_SIMD_WIDTH;
}

SOFT_ON_FIBER void
soft_count_place(soft_check *check, soft_range *range)
{
    soft_count *count = check->count;
    count->given_nbytes += range->nbytes;
    memset((void *)range->base, 0, range->nbytes); /* what was there before is no input */
    for (size_t i = (size_t)check->view_count; i < count->memory_count; i++) {
        soft_count_memory *memory = &count->memories[i];
        if (memory->facts.is_variable == range->is_variable &&
            memory->facts.number == range->number) {
            memory->base = range->base;
            range->counted = (uint32_t)i;
            return;
        }
    }
    add_memory(count, check, range);
}

/* A lane goes on that waited for others, but not for all: n goes on too. */
SOFT_ON_FIBER static void
find_places(const soft_count *count, soft_u32 thread)
{
    soft_u32 bit = 1u << thread % SOFT_SIMD_WIDTH;
    for (soft_counted *site = count->used; site != NULL; site = site->next) {
        if (site->once != NULL) {
            continue;
        }
        site->thread = thread;
        site->at = site->first;
        while (site->at->lanes & bit) { /* the one behind all has none */
            site->at += 1;
        }
    }
}

SOFT_ON_FIBER void
soft_count_turn(soft_check *check, soft_u32 count)
{
    soft_count *counting = check->count;
    soft_u32 thread = check->thread->index;
    soft_u32 lane = thread % SOFT_SIMD_WIDTH, simdgroup = thread / SOFT_SIMD_WIDTH;
    if (simdgroup != counting->simdgroup) { /* the one before waits at a barrier, or is done */
        settle(check);
        counting->simdgroup = simdgroup;
        counting->possible = (soft_u32)soft_count_lanes(soft_all_lanes(check, simdgroup));
    }
    soft_u32 bits = (count >= SOFT_SIMD_WIDTH ? UINT32_MAX : (1u << count) - 1) << lane;
    if (counting->began & bits) {
        find_places(counting, thread);
    }
    counting->began |= bits;
}

SOFT_ON_FIBER static void
count_at(soft_check *check, soft_count_places *places, const void *site)
{
    uint32_t offset = soft_check_offset(check, site);
    size_t place = places->last; /* in a loop the one behind it comes next */
    for (size_t i = 0; i < places->count && places->list[place].offset != offset; i++) {
        place = place + 1 < places->count ? place + 1 : 0;
    }
    if (places->count == 0 || places->list[place].offset != offset) {
        if (places->count < SOFT_MOST_COUNTED_PLACES) { /* of more places the last is told */
            places->list[places->count++] = (soft_counts_place){offset, 0};
        }
        place = places->count - 1;
    }
    places->list[place].count += 1;
    places->last = place;
}

SOFT_ON_FIBER void
soft_count_barrier(soft_check *check, const void *site)
{
    settle(check);
    count_at(check, &check->count->barriers, site);
}

SOFT_ON_FIBER void
soft_count_meeting(soft_check *check, soft_u32 simdgroup, soft_u32 lanes, const void *site)
{
    count_at(check, &check->count->meetings, site);
    if (lanes == soft_all_lanes(check, simdgroup)) {
        settle(check);
    }
}

/* ---- the end ---- */

static void
settle_once(soft_check *check)
{
    for (soft_counted *site = check->watch->counted; site < check->watch->counted_end; site++) {
        if (site->once != NULL) {
            soft_once_settle(check, site);
        }
    }
}

void
soft_count_end(soft_check *check)
{
    end_group(check);
    settle_once(check);
    if (!check->count->lacks_memory) {
        soft_count_file(check);
    }
}

void
soft_count_close(soft_check *check)
{
    soft_count *count = check->count;
    if (count == NULL) { /* there was no memory for it */
        return;
    }
    for (soft_counted *site = check->watch->counted; site < check->watch->counted_end; site++) {
        for (soft_count_row *row = site->rows, *next; row != NULL; row = next) {
            next = row->next;
            free(row);
        }
        free(site->first);
        forget(site);
    }
    for (size_t i = 0; i < count->memory_count; i++) {
        free(count->memories[i].read.bits);
        free(count->memories[i].written.bits);
        free(count->memories[i].atomics);
    }
    for (soft_count_lists *chunk = count->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(count);
    check->count = NULL;
}
