/* check_races.c: an access against what the shadow remembers.
 *
 * Owns:    nothing.
 * Calls:   check_order.h, check_shadow.h.
 * Threads: the OS thread that runs the launch.
 *
 * Two accesses to a byte race if one of them writes, nothing orders them, and not both are atomic.
 * Writes of the same value are races too, since the values of one test may be the same by chance;
 * but not those of one instruction in one threadgroup: that is how kernels leave a result that all
 * threads have.  A barrier without flags orders a read before a write: nothing has to be seen.
 */
#include "softmetal/checker/check_state.h"

#include <string.h>

static bool
is_race(const soft_check *check, soft_mark earlier, soft_mark now, int memory)
{
    return !(earlier.who & now.who & SOFT_MARK_ATOMIC) &&
           !soft_order_is_before(&check->order, earlier, soft_mark_thread(now), memory);
}

/* Another buffer that has the byte. */
static soft_found_memory
twin_of(const soft_check *check, const soft_range *range, uintptr_t at)
{
    const soft_range *end = check->ranges + check->view_count;
    for (const soft_range *other = check->ranges; other < end; other++) {
        if (range->memory != SOFT_THREADGROUP_MEMORY && other != range &&
            at - other->base < other->nbytes) {
            return soft_range_found(other);
        }
    }
    return (soft_found_memory){.is_known = false};
}

/* Unless one is known of the instructions of both marks. */
static void
add_finding(soft_check *check, const soft_range *range, uintptr_t at, soft_mark earlier,
            soft_mark now, soft_finding found)
{
    soft_findings *findings = &check->findings;
    if (soft_findings_has(findings, soft_mark_offset(earlier), soft_mark_offset(now))) {
        return;
    }
    if (findings->count ==
        SOFT_MOST_FINDINGS - 1) { /* the last place is for what stops the launch */
        findings->has_more = true;
        return;
    }
    found.at[0] = soft_at_mark(check, earlier);
    found.at[1] = soft_at_mark(check, now);
    found.memory = soft_range_found(range);
    found.twin = twin_of(check, range, at);
    found.offset = (int64_t)(at - range->base);
    found.nbytes = 1;
    (void)soft_findings_add(findings, &found);
}

static __attribute__((noinline)) void
report_race(soft_check *check, const soft_range *range, uintptr_t at, soft_mark earlier,
            soft_mark now, bool earlier_writes, bool now_writes)
{
    bool is_same_group = earlier.time >= check->order.group_start;
    add_finding(check, range, at, earlier, now,
                (soft_finding){
                    .kind = is_same_group ? SOFT_FOUND_RACE : SOFT_FOUND_GROUP_RACE,
                    .is_write = {earlier_writes, now_writes},
                    .is_mixed = ((earlier.who ^ now.who) & SOFT_MARK_ATOMIC) != 0,
                    .count = 2,
                });
}

static __attribute__((noinline)) void
report_unwritten(soft_check *check, const soft_range *range, uintptr_t at, soft_mark now)
{
    bool is_device = range->memory != SOFT_THREADGROUP_MEMORY;
    soft_found kind = is_device ? SOFT_FOUND_UNWRITTEN_READ : SOFT_FOUND_UNWRITTEN;
    add_finding(check, range, at, now, now, (soft_finding){.kind = kind, .count = 1});
    size_t bit = at - range->shadow->base;
    if (!is_device && bit < SOFT_UNWRITTEN_BITS) {
        check->unwritten[bit / 64] |= (uint64_t)1 << bit % 64;
        check->has_unwritten = true;
    }
}

/* The threadgroup has not written the byte: so the findings of who read it stand, and name it. */
static void
keep_unwritten(soft_check *check, uintptr_t at, const soft_cell *cell)
{
    const soft_range *range = NULL;
    (void)soft_memory_find(check, at, 1, SOFT_ACCESS_READ, &range);
    for (size_t i = 0; range != NULL && i < check->findings.count; i++) {
        soft_finding *finding = &check->findings.list[i];
        for (int k = 0; k < 2; k++) {
            if (finding->kind == SOFT_FOUND_UNWRITTEN && !finding->stays_unwritten &&
                cell->reads[k].time >= check->order.group_start &&
                finding->at[0].offset == soft_mark_offset(cell->reads[k])) {
                finding->stays_unwritten = true;
                finding->memory = soft_range_found(range);
                finding->offset = (int64_t)(at - range->base);
                finding->at[0] = finding->at[1] = soft_at_mark(check, cell->reads[k]);
            }
        }
    }
}

void
soft_race_end_group(soft_check *check)
{
    soft_shadow *shadow = &check->shadows[0];
    for (size_t i = 0; check->has_unwritten && i < SOFT_UNWRITTEN_BITS / 64; i++) {
        for (; check->unwritten[i] != 0; check->unwritten[i] &= check->unwritten[i] - 1) {
            size_t at = 64 * i + (size_t)__builtin_ctzll(check->unwritten[i]);
            const soft_cell *cell = soft_shadow_cell(shadow, at >> shadow->shift);
            if (cell->write.time < check->order.group_start) {
                keep_unwritten(check, shadow->base + at, cell);
            }
        }
    }
    check->has_unwritten = false;
}

/* Keep the last read, and another by a thread that it is not ordered after: of another threadgroup,
 * if there is one.  The next writer that is ordered after both is ordered after all. */
static inline void
remember_read(const soft_check *check, soft_cell *cell, soft_mark now, int memory)
{
    uint32_t thread = soft_mark_thread(now);
    soft_mark last = cell->reads[0];
    if (!soft_order_is_before(&check->order, last, thread, memory) &&
        (soft_order_is_before(&check->order, cell->reads[1], thread, memory) ||
         last.time < check->order.group_start)) {
        cell->reads[1] = last;
    }
    cell->reads[0] = now;
}

static inline void
touch_read(soft_check *check, const soft_range *range, soft_cell *cell, uintptr_t at,
           soft_mark now)
{
    if (is_race(check, cell->write, now, range->memory)) {
        report_race(check, range, at, cell->write, now, true, false);
    }
    if (cell->reads[0].time != now.time || cell->reads[0].who != now.who) {
        remember_read(check, cell, now, range->memory);
    }
}

/* Puts the judgement off, if this may be the same value once more.  False: it is a race. */
static bool
may_be_equal(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
             soft_mark earlier, soft_mark now)
{
    soft_rewrite *rewrite = &check->rewrite;
    if (earlier.who >> 11 != now.who >> 11 || earlier.time < check->order.group_start ||
        (now.who & SOFT_MARK_ATOMIC) != 0 || nbytes > sizeof rewrite->bytes ||
        rewrite->range != NULL) {
        return rewrite->range != NULL && rewrite->now.who == now.who; /* of the same access */
    }
    *rewrite = (soft_rewrite){range, at, nbytes, earlier, now, {0}};
    memcpy(rewrite->bytes, (const void *)at, nbytes);
    return true;
}

void
soft_race_judge(soft_check *check)
{
    soft_rewrite rewrite = check->rewrite;
    check->rewrite.range = NULL;
    if (memcmp(rewrite.bytes, (const void *)rewrite.at, rewrite.nbytes) != 0) {
        report_race(check, rewrite.range, rewrite.at, rewrite.earlier, rewrite.now, true, true);
    }
}

/* An atomic write by the thread that has just written plainly: who races with it races with that. */
static bool
is_weaker(soft_mark earlier, soft_mark now)
{
    return (now.who & SOFT_MARK_ATOMIC) != 0 && (earlier.who & SOFT_MARK_ATOMIC) == 0 &&
           earlier.time == now.time && soft_mark_thread(earlier) == soft_mark_thread(now);
}

/* A write of what somebody has touched before. */
static __attribute__((noinline)) void
touch_again(soft_check *check, const soft_range *range, soft_cell *cell, uintptr_t at,
            size_t nbytes, soft_mark now)
{
    if (is_race(check, cell->write, now, range->memory) &&
        !may_be_equal(check, range, at, nbytes, cell->write, now)) {
        report_race(check, range, at, cell->write, now, true, true);
    }
    for (int i = 0; i < 2; i++) {
        bool has_met = cell->reads[i].time >= check->order.group_start &&
                       cell->reads[i].time < check->order.met;
        if (cell->reads[i].time != 0 && !has_met &&
            is_race(check, cell->reads[i], now, range->memory)) {
            report_race(check, range, at, cell->reads[i], now, false, true);
            break;
        }
    }
    if (is_weaker(cell->write, now)) {
        return;
    }
    cell->write = now;
    if (!(now.who & SOFT_MARK_ATOMIC)) { /* who races with a read before it, races with it */
        cell->reads[0] = cell->reads[1] = (soft_mark){0};
    }
}

/* A vector of three has a fourth that nobody writes, and a structure may have gaps: what is unwritten
 * counts from the front. */
static bool
is_unwritten(const soft_check *check, const soft_range *range, const soft_cell *cell,
             uintptr_t at)
{
    return range->memory != SOFT_THREADGROUP_MEMORY
               ? range->fresh != NULL && cell->write.time == 0 &&
                     soft_fresh_has(range->fresh, at)
               : cell->write.time < check->order.group_start;
}

static inline void
touch_write(soft_check *check, const soft_range *range, soft_cell *cell, uintptr_t at,
            size_t nbytes, soft_mark now)
{
    if ((cell->write.time | cell->reads[0].time) == 0) {
        cell->write = now;
    }
    else {
        touch_again(check, range, cell, at, nbytes, now);
    }
}

void
soft_race_touch(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                soft_u32 how, soft_mark now)
{
    soft_shadow *shadow = range->shadow;
    uintptr_t from = at - shadow->base;
    uintptr_t grain = (uintptr_t)1 << shadow->shift;
    if (((from | nbytes) & (grain - 1)) != 0) {
        soft_shadow_fit(shadow, at, nbytes);
        grain = (uintptr_t)1 << shadow->shift;
    }
    if (shadow->cells == NULL) {
        soft_check_stop_without_memory(check);
    }
    size_t number = from >> shadow->shift;
    soft_cell *cell = soft_shadow_cell(shadow, number);
    bool is_write = (how & SOFT_ACCESS_WRITE) != 0;
    if ((!is_write || how & SOFT_ACCESS_READ) && is_unwritten(check, range, cell, at)) {
        report_unwritten(check, range, at, now);
    }
    uintptr_t end = at + nbytes;
    while (true) {
        if (is_write) {
            touch_write(check, range, cell, at, end - at, now);
        }
        else {
            touch_read(check, range, cell, at, now);
        }
        at += grain;
        if (at >= end) {
            break;
        }
        number += 1;
        cell = soft_shadow_cell(shadow, number);
    }
}

/* ---- many accesses at once ---- */

/* Order depends on threadgroups, fences, and whether two threads are the same, while none of the
 * threads waits for another: so what holds for the first grain of a block holds for all. */
bool
soft_race_touch_block(soft_check *check, const soft_range *range, uintptr_t at, size_t nbytes,
                      soft_u32 how, soft_mark now)
{
    const soft_shadow *shadow = range->shadow;
    uintptr_t from = at - shadow->base;
    if (nbytes != (size_t)1 << shadow->shift || (from & (nbytes * SOFT_BLOCK - 1)) != 0) {
        return false;
    }
    soft_cell *block = &shadow->blocks[(from >> shadow->shift) / SOFT_BLOCK];
    if (block->write.time == SOFT_SPLIT) {
        return false;
    }
    if (how & SOFT_ACCESS_WRITE) {
        touch_write(check, range, block, at, nbytes, now);
    }
    else {
        touch_read(check, range, block, at, now);
    }
    return true;
}

/* Would `now` write what an instruction of the threadgroup, the same one, has written? */
static bool
is_repeated(const soft_check *check, const soft_cell *cell, soft_mark now)
{
    return cell->write.time >= check->order.group_start &&
           soft_mark_offset(cell->write) == soft_mark_offset(now);
}

bool
soft_race_may_wait(const soft_check *check, const soft_range *range, uintptr_t at,
                   size_t nbytes, size_t step, size_t count, soft_mark now)
{
    const soft_shadow *shadow = range->shadow;
    uintptr_t from = at - shadow->base, end = from + count * step;
    if (nbytes != (size_t)1 << shadow->shift || ((from | step) & (nbytes - 1)) != 0) {
        return false;
    }
    while (from < end) {
        size_t grain = from >> shadow->shift;
        const soft_cell *block = &shadow->blocks[grain / SOFT_BLOCK];
        bool is_split = block->write.time == SOFT_SPLIT;
        if (is_repeated(check, is_split ? &shadow->cells[grain] : block, now)) {
            return false;
        }
        bool is_close = step == nbytes; /* then the block's other grains need no look */
        from += is_split || !is_close ? step : nbytes * (SOFT_BLOCK - grain % SOFT_BLOCK);
    }
    return true;
}
