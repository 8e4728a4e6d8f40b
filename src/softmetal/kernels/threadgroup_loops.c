/* threadgroup_loops.c: threadgroups whose threads need no stacks of their own: rows, and regions.
 *
 * A kernel without syncs runs row after row.  One that was split into regions (regions.py): all
 * threads of a threadgroup, or of a SIMD-group where lanes wait for each other, run one region
 * together; then the wait that they came to says which is next.  Threads that came to different
 * waits, or that a seed shuffles, run it in pieces, down to one thread each.
 *
 * Owns:    nothing.
 * Calls:   the image, threadgroup.h, simdgroup.h, placement.h.
 * Threads: the OS thread that runs the threadgroup.
 */
#include <sys/mman.h>

#include "softmetal/checker/check.h"
#include "softmetal/kernels/threadgroup.h"

/* ---- rows ---- */

/* Threads from `first` on that are of one row and of one SIMD-group. */
SOFT_ON_FIBER static soft_u32
count_at_once(const soft_threadgroup *group, const soft_thread *first)
{
    soft_u32 count = group->placement.size[0] - first->position_in_group[0];
    soft_u32 lanes = SOFT_SIMD_WIDTH - first->lane;
    return group->run->image->is_counting && lanes < count ? lanes : count;
}

/* Row by row; the checker wants to know whose turn it is. */
SOFT_ON_FIBER static void
run_watched(soft_threadgroup *group, soft_thread *thread)
{
    soft_u32 count = 0;
    for (soft_u32 index = 0; index < group->placement.thread_count; index += count) {
        if (count == 0 || !soft_placement_advance(thread, count)) {
            soft_placement_of(&group->placement, index, thread);
        }
        count = count_at_once(group, thread);
        soft_threadgroup_tell_checker(group, count);
        group->run->image->run_rows(thread, count, 1);
        soft_check_return();
    }
}

/* Layer by layer. */
SOFT_ON_FIBER static void
run_group(soft_threadgroup *group, soft_thread *thread)
{
    if (group->run->is_checked) {
        run_watched(group, thread);
        return;
    }
    soft_u32 width = group->placement.size[0], height = group->placement.size[1];
    for (soft_u32 z = 0; z < group->placement.size[2]; z++) {
        soft_placement_of(&group->placement, z * width * height, thread);
        group->run->image->run_rows(thread, width, height);
    }
}

/* Nobody waits for anybody: all on one stack. */
SOFT_ON_FIBER static void
run_straight(soft_threadgroup *group, soft_thread *thread, soft_next_group *next_group)
{
    while (next_group(group)) {
        run_group(group, thread);
    }
}

/* ---- regions ---- */

/* What threadgroup after threadgroup uses. */
typedef struct turn {
    soft_threadgroup *group;
    const soft_regions *regions;
    soft_step step;
    soft_thread origin;
    void *row[SOFT_MOST_PARAMETERS];
    soft_u64 variables[SOFT_MOST_PLACES];
} turn;

bool
soft_threadgroup_fit(soft_threadgroup *group, const soft_regions *regions)
{
    soft_region_memory *memory = &group->regions;
    soft_u64 shared_nbytes = 2 * SOFT_MOST_SIMDGROUPS * regions->shared_nbytes;
    soft_u64 nbytes = regions->slots_nbytes + shared_nbytes;
    if (regions->variable_count > SOFT_MOST_PLACES) {
        return false;
    }
    if (memory->nbytes < nbytes) {
        if (memory->slots != NULL) {
            munmap(memory->slots, memory->nbytes);
        }
        void *slots =
            mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory->slots = slots == MAP_FAILED ? NULL : slots;
        memory->nbytes = slots == MAP_FAILED ? 0 : nbytes;
    }
    return memory->nbytes >= nbytes;
}

SOFT_ON_FIBER static bool
is_in_order(const turn *turn)
{
    return turn->group->run->shuffle.order == SOFT_ORDER_FIRST;
}

SOFT_ON_FIBER static void
set_next(turn *turn, soft_u32 first, soft_u32 count, soft_u32 wait)
{
    for (soft_u32 index = first; index < first + count; index++) {
        turn->step.next[index] = (soft_u16)wait;
    }
}

/* How many threads from `first` on, `count` at most, have the same next. */
SOFT_ON_FIBER static soft_u32
count_alike(const turn *turn, soft_u32 first, soft_u32 count)
{
    soft_u32 alike = 1;
    while (alike < count && turn->step.next[first + alike] == turn->step.next[first]) {
        alike += 1;
    }
    return alike;
}

/* Run threads of one next; then each one's next says to which wait it came. */
SOFT_ON_FIBER static void
run_alike(turn *turn, soft_u32 first, soft_u32 count)
{
    soft_u32 answer = turn->regions->runs[turn->step.next[first]](&turn->step, first, count);
    if (answer != SOFT_REGION_SEVERAL) {
        set_next(turn, first, count, answer);
    }
}

/* The shared values of 32 threads, or of all, as they were and as they become. */
SOFT_ON_FIBER static void
set_shared(turn *turn, soft_u32 simdgroup, soft_u32 half)
{
    soft_u8 *shared = turn->group->regions.slots + turn->regions->slots_nbytes +
                      2 * simdgroup * turn->regions->shared_nbytes;
    turn->step.shared_in = shared + half * turn->regions->shared_nbytes;
    turn->step.shared_out = shared + (half ^ 1) * turn->regions->shared_nbytes;
}

/* ---- lanes wait for each other ---- */

SOFT_ON_FIBER static void
set_values(turn *turn, soft_simdgroup *simdgroup)
{
    turn->step.given = simdgroup->values[simdgroup->half ^ 1];
    turn->step.give = simdgroup->values[simdgroup->half];
    turn->step.met = simdgroup->met;
}

/* A lane has run: to what has it come? */
SOFT_ON_FIBER static void
count_lane(turn *turn, soft_u32 index, soft_u32 lane)
{
    soft_simdgroup *simdgroup = &turn->group->simdgroups[index];
    soft_u32 next = turn->step.next[index * SOFT_SIMD_WIDTH + lane];
    if (next == SOFT_REGION_END) {
        return;
    }
    const soft_wait *wait = &turn->regions->waits[next];
    if (wait->kind == SOFT_WAIT_GROUP) {
        simdgroup->at_barrier |= UINT32_C(1) << lane;
        return;
    }
    soft_u32 for_all = wait->kind == SOFT_WAIT_ALL_LANES ? SOFT_ALL_LANES : 0;
    soft_simdgroup_come(simdgroup, lane, NULL, wait->nbytes | for_all, next);
}

/* The lanes that are ready, each run of neighbours of one next, or each alone in a shuffled order. */
SOFT_ON_FIBER static void
run_lanes(turn *turn, soft_u32 index)
{
    soft_threadgroup *group = turn->group;
    soft_simdgroup *simdgroup = &group->simdgroups[index];
    soft_u32 ready = simdgroup->ready, base = index * SOFT_SIMD_WIDTH;
    set_values(turn, simdgroup);
    set_shared(turn, index, simdgroup->shared_half);
    simdgroup->ready = 0;
    while (ready != 0) {
        soft_u32 lane = (soft_u32)__builtin_ctz(ready), count = 1;
        if (is_in_order(turn)) {
            soft_u32 gap = ~(ready >> lane);
            count = count_alike(turn, base + lane,
                                gap == 0 ? SOFT_SIMD_WIDTH : (soft_u32)__builtin_ctz(gap));
        }
        else {
            lane = soft_shuffle_bit(&group->run->shuffle, &group->random, ready);
        }
        run_alike(turn, base + lane, count);
        for (; count > 0; count--, lane++) {
            ready &= ~(UINT32_C(1) << lane);
            count_lane(turn, index, lane);
        }
    }
    simdgroup->shared_half ^= 1;
}

/* All lanes that are left, which are the first ones, as long as they come to the same waits.  If those
 * are several, their threads' next says which. */
SOFT_ON_FIBER static void
run_together(turn *turn, soft_u32 index)
{
    soft_simdgroup *simdgroup = &turn->group->simdgroups[index];
    soft_u32 first = index * SOFT_SIMD_WIDTH, lanes = simdgroup->ready, wait = simdgroup->next;
    soft_u32 count = (soft_u32)__builtin_popcount(lanes);
    for (;;) {
        set_values(turn, simdgroup);
        set_shared(turn, index, simdgroup->shared_half);
        wait = turn->regions->runs[wait](&turn->step, first, count);
        simdgroup->shared_half ^= 1;
        if (wait >= SOFT_REGION_SEVERAL || turn->regions->waits[wait].kind == SOFT_WAIT_GROUP) {
            break;
        }
        simdgroup->met = lanes;
        simdgroup->half ^= 1;
    }
    simdgroup->next = wait;
    simdgroup->ready = 0;
    if (wait < SOFT_REGION_SEVERAL) {
        simdgroup->at_barrier = lanes;
    }
    for (soft_u32 lane = 0; wait == SOFT_REGION_SEVERAL && lane < count; lane++) {
        count_lane(turn, index, lane);
    }
}

/* Do the lanes that are ready go on together? */
SOFT_ON_FIBER static bool
are_together(turn *turn, soft_u32 index)
{
    soft_simdgroup *simdgroup = &turn->group->simdgroups[index];
    soft_u32 first = index * SOFT_SIMD_WIDTH, ready = simdgroup->ready;
    if (simdgroup->next != SOFT_REGION_SEVERAL) {
        return true;
    }
    if (!is_in_order(turn) || simdgroup->meeting != 0 || simdgroup->at_barrier != 0 ||
        (ready & (ready + 1)) != 0) {
        return false;
    }
    soft_u32 count = (soft_u32)__builtin_popcount(ready);
    if (count_alike(turn, first, count) == count) {
        simdgroup->next = turn->step.next[first]; /* again */
    }
    return simdgroup->next != SOFT_REGION_SEVERAL;
}

/* Until each of its lanes is at the barrier, or has returned. */
SOFT_ON_FIBER static void
run_simdgroup(turn *turn, soft_u32 index)
{
    soft_simdgroup *simdgroup = &turn->group->simdgroups[index];
    while ((simdgroup->ready | simdgroup->meeting) != 0) {
        if (simdgroup->ready == 0) {
            soft_simdgroup_meet(simdgroup);
        }
        if (are_together(turn, index)) {
            run_together(turn, index);
        }
        else {
            run_lanes(turn, index);
        }
    }
}

SOFT_ON_FIBER static bool
run_simdgroups(turn *turn)
{
    soft_threadgroup *group = turn->group;
    soft_u32 threads = group->placement.thread_count;
    soft_u32 waiting = 0;
    if (!is_in_order(turn)) {
        set_next(turn, 0, threads, 0);
    }
    for (soft_u32 first = 0; first < threads; first += SOFT_SIMD_WIDTH) {
        soft_u32 left = threads - first;
        soft_simdgroup *simdgroup = &group->simdgroups[first / SOFT_SIMD_WIDTH];
        soft_simdgroup_begin(simdgroup,
                             left >= SOFT_SIMD_WIDTH ? UINT32_MAX : (1u << left) - 1);
        simdgroup->next = is_in_order(turn) ? 0 : SOFT_REGION_SEVERAL;
        waiting |= UINT32_C(1) << first / SOFT_SIMD_WIDTH;
    }
    while (waiting != 0 && !soft_run_is_stopped(turn->group->run)) {
        soft_u32 running = waiting;
        waiting = 0;
        while (running != 0) {
            soft_u32 index = is_in_order(turn) ? (soft_u32)__builtin_ctz(running)
                                               : soft_shuffle_bit(&group->run->shuffle,
                                                                  &group->random, running);
            running &= ~(UINT32_C(1) << index);
            run_simdgroup(turn, index);
            soft_simdgroup *simdgroup = &group->simdgroups[index];
            waiting |= (soft_u32)(simdgroup->at_barrier != 0) << index;
            simdgroup->ready = simdgroup->at_barrier;
            simdgroup->at_barrier = 0;
        }
    }
    return !soft_run_is_stopped(turn->group->run);
}

/* ---- only the threadgroup waits ---- */

/* A prime that no threadgroup's size is a multiple of: with it, steps round the threadgroup come to
 * each thread. */
#define STEP 7919

/* The thread that runs as the n-th of one step. */
SOFT_ON_FIBER static soft_u32
shuffled(const soft_threadgroup *group, soft_u32 n)
{
    soft_u32 threads = group->placement.thread_count;
    if (group->run->shuffle.order == SOFT_ORDER_LAST) {
        return threads - 1 - n;
    }
    return (soft_u32)(((uint64_t)n * STEP + group->random) % threads);
}

/* From each thread's next to the one after it.  False: all have returned. */
SOFT_ON_FIBER static bool
run_pieces(turn *turn)
{
    soft_threadgroup *group = turn->group;
    soft_u32 threads = group->placement.thread_count;
    bool is_any = false, in_order = is_in_order(turn);
    soft_seed_random(&group->random);
    for (soft_u32 n = 0, count = 1; n < threads; n += count) {
        soft_u32 first = in_order ? n : shuffled(group, n);
        count = in_order ? count_alike(turn, n, threads - n) : 1;
        if (turn->step.next[first] != SOFT_REGION_END) {
            run_alike(turn, first, count);
            is_any = true;
        }
    }
    return is_any;
}

SOFT_ON_FIBER static bool
run_threads(turn *turn)
{
    soft_u32 threads = turn->group->placement.thread_count, wait = 0, half = 0;
    while (is_in_order(turn) && wait < SOFT_REGION_SEVERAL &&
           !soft_run_is_stopped(turn->group->run)) {
        set_shared(turn, 0, half);
        wait = turn->regions->runs[wait](&turn->step, 0, threads);
        half ^= 1;
    }
    if (wait == SOFT_REGION_END) {
        return !soft_run_is_stopped(turn->group->run);
    }
    if (wait == 0) {
        set_next(turn, 0, threads, 0);
    }
    bool is_more = true;
    while (is_more && !soft_run_is_stopped(turn->group->run)) {
        set_shared(turn, 0, half);
        is_more = run_pieces(turn);
        half ^= 1;
    }
    return !soft_run_is_stopped(turn->group->run);
}

/* Give the threadgroup's memory to arguments and variables, which lie at one place in each threadgroup. */
SOFT_ON_FIBER static void
place_variables(turn *turn)
{
    soft_threadgroup *group = turn->group;
    const soft_image *image = group->run->image;
    image->prepare(group->run->launch, turn->row);
    for (soft_u64 index = 0; index < turn->regions->variable_count; index++) {
        const soft_variable *variable = &turn->regions->variables[index];
        const soft_u8 *place =
            image->runtime->threadgroup_variable((soft_u32)variable->number, variable->nbytes,
                                                 variable->alignment);
        turn->variables[index] = (soft_u64)(place - group->memory.bytes);
    }
}

/* Too few are side by side for vectors. */
SOFT_ON_FIBER static bool
is_narrow(const turn *turn)
{
    return turn->regions->is_free && is_in_order(turn) && turn->group->placement.size[0] < 8;
}

SOFT_ON_FIBER static void
run_regions(soft_threadgroup *group, soft_next_group *next_group)
{
    turn turn;
    turn.group = group;
    turn.regions = group->run->image->regions;
    turn.step = (soft_step){.row = turn.row,
                            .origin = &turn.origin,
                            .slots = group->regions.slots,
                            .memory = group->memory.bytes,
                            .variables = turn.variables,
                            .next = group->regions.next};
    bool is_placed = false;
    while (next_group(group)) {
        if (!is_placed || group->run->is_poisoned) {
            place_variables(&turn);
            is_placed = true;
        }
        soft_placement_of(&group->placement, 0, &turn.origin);
        /* From two places: side by side they were read as one number of 64 bits, which has to wait
         * until what wrote them apart, and all that was written before, is in the cache. */
        turn.step.width = turn.origin.group_size[0];
        turn.step.height = group->placement.size[1];
        if (is_narrow(&turn)) {
            run_group(group, &turn.origin);
        }
        else if (!(turn.regions->has_lanes ? run_simdgroups(&turn) : run_threads(&turn))) {
            return;
        }
    }
}

SOFT_ON_FIBER void
soft_threadgroup_loop(soft_threadgroup *group, soft_thread *thread, soft_next_group *next_group)
{
    if (group->run->image->regions != NULL) {
        run_regions(group, next_group);
    }
    else {
        run_straight(group, thread, next_group);
    }
}
