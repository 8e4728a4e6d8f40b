/* layout_overlap.c: do two layouts touch a byte in common?  See layout.h.
 *
 * Both layouts become one equation  sum(step[k] * x[k]) == target,  0 <= x[k] <= limit[k],
 * step[k] > 0: a negative step is counted from the other end of its axis, the second layout's
 * items are counted backwards, and one more unknown of step 1 stands for the bytes within two
 * items.
 *
 * Source:  reasoned from the equation; the modular search is Euclid's algorithm on an
 *          interval.
 */
#include "arithmetic/layout.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

#define MAX_TERMS (2 * LAYOUT_MAX_NDIM + 1)
#define MAX_COUNTED_POSITIONS ((uint64_t)1 << 31)

typedef struct term {
    uint64_t step, limit;
} term;

typedef struct equation {
    int nterms;
    uint64_t target;
    term terms[MAX_TERMS]; /* steps descending once sorted */
    /* Bounds over terms[k] .. terms[nterms - 1]: */
    uint64_t reach[MAX_TERMS + 1]; /* the largest sum */
    uint64_t unit[MAX_TERMS + 1];  /* the greatest common divisor; 0 for none */
    /* from here on every multiple of unit up to reach is a sum */
    int full;
    uint64_t steps_left;
    bool is_limited; /* no keep_on: OVERLAP_STOPPED when the steps are used up */
    bool (*keep_on)(void *context);
    void *context;
} equation;

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the equation ---- */

static void
add_term(equation *eq, uint64_t step, uint64_t limit)
{
    if (step == 0 || limit == 0) {
        return;
    }
    for (int k = 0; k < eq->nterms; k++) {
        if (eq->terms[k].step == step) { /* steps of two arrays that lie in the same grid */
            eq->terms[k].limit += limit;
            return;
        }
    }
    eq->terms[eq->nterms++] = (term){step, limit};
}

static void
add_axes(equation *eq, const strided_layout *layout)
{
    for (int axis = 0; axis < layout->ndim; axis++) {
        int64_t stride = layout->strides[axis];
        if (layout->shape[axis] > 1 && stride != 0) {
            add_term(eq, layout_absolute(stride) * (uint64_t)layout->itemsize,
                     (uint64_t)layout->shape[axis] - 1);
        }
    }
}

/* The first byte and one past the last. */
static void
find_range(const overlap_items *items, uint64_t *first, uint64_t *end)
{
    int64_t lowest, highest;
    layout_offset_bounds(items->layout, &lowest, &highest);
    uint64_t itemsize = (uint64_t)items->layout->itemsize;
    *first = items->address + (uint64_t)lowest * itemsize;
    *end = items->address + ((uint64_t)highest + 1) * itemsize;
}

/* Divide by what all strides have in common; the bytes within items then take steps of that. */
static bool
divide(equation *eq, uint64_t spare_bytes)
{
    uint64_t unit = 0;
    for (int k = 0; k < eq->nterms; k++) {
        unit = layout_common_divisor(eq->terms[k].step, unit);
    }
    if (unit == 0) { /* two single items */
        unit = 1;
    }
    uint64_t rest = eq->target % unit;
    if (rest > spare_bytes) {
        return false;
    }
    eq->target /= unit;
    for (int k = 0; k < eq->nterms; k++) {
        eq->terms[k].step /= unit;
    }
    add_term(eq, 1, (spare_bytes - rest) / unit);
    return true;
}

static int
by_step_descending(const void *left, const void *right)
{
    uint64_t a = ((const term *)left)->step, b = ((const term *)right)->step;
    return (a < b) - (a > b);
}

/* The smaller of the target and what is left above it; limits that it cannot use up are cut. */
static void
tighten(equation *eq)
{
    uint64_t reach = 0;
    for (int k = 0; k < eq->nterms; k++) {
        reach += eq->terms[k].step * eq->terms[k].limit;
    }
    if (eq->target <= reach) {
        eq->target = smaller(eq->target, reach - eq->target);
    }
    int kept = 0;
    for (int k = 0; k < eq->nterms; k++) {
        term cut = {eq->terms[k].step,
                    smaller(eq->terms[k].limit, eq->target / eq->terms[k].step)};
        if (cut.limit > 0) {
            eq->terms[kept++] = cut;
        }
    }
    eq->nterms = kept;
}

static void
measure_tails(equation *eq)
{
    qsort(eq->terms, (size_t)eq->nterms, sizeof eq->terms[0], by_step_descending);
    eq->reach[eq->nterms] = eq->unit[eq->nterms] = 0;
    eq->full = eq->nterms;
    for (int k = eq->nterms - 1; k >= 0; k--) {
        const term *here = &eq->terms[k];
        bool is_full = eq->full == k + 1 && here->step <= eq->reach[k + 1] + eq->unit[k + 1] &&
                       here->step % eq->unit[k + 1] == 0;
        if (k == eq->nterms - 1 || is_full) {
            eq->full = k;
        }
        eq->reach[k] = eq->reach[k + 1] + here->step * here->limit;
        eq->unit[k] = layout_common_divisor(here->step, eq->unit[k + 1]);
    }
}

/* ---- two unknowns and a full tail, in a logarithm of steps ---- */

/* The smallest x with first <= step * x % modulus <= last, where 0 <= first <= last < modulus;
 * UINT64_MAX if there is none. */
static uint64_t
first_multiple_within(uint64_t step, uint64_t modulus, uint64_t first, uint64_t last)
{
    if (first == 0) {
        return 0;
    }
    if (step == 0) {
        return UINT64_MAX;
    }
    if (step > modulus / 2) { /* count downward from the modulus */
        return first_multiple_within(modulus - step, modulus, modulus - last, modulus - first);
    }
    uint64_t x = first / step + (first % step != 0);
    if ((wide)x * step <= last) {
        return x;
    }
    /* No multiple of step lies within; after y turns round the modulus one does. */
    uint64_t back = (step - modulus % step) % step;
    uint64_t y = first_multiple_within(back, step, first % step, last % step);
    if (y == UINT64_MAX) {
        return UINT64_MAX;
    }
    wide turned = (wide)modulus * y + first;
    return (uint64_t)((turned + step - 1) / step);
}

/* The values of unknown k that leave the tail something between 0 and its reach;
 * false: none. */
static bool
find_span(const equation *eq, int k, uint64_t target, uint64_t *low, uint64_t *high)
{
    const term *here = &eq->terms[k];
    uint64_t beyond = target > eq->reach[k + 1] ? target - eq->reach[k + 1] : 0;
    *low = beyond / here->step + (beyond % here->step != 0);
    *high = smaller(target / here->step, here->limit);
    return *low <= *high;
}

/* Unknowns k and k + 1 before a full tail whose unit divides both steps. */
static bool
solve_pair(const equation *eq, int k, uint64_t target)
{
    uint64_t low, high, unit = eq->unit[k + 2];
    if (target % unit != 0 || !find_span(eq, k, target, &low, &high)) {
        return false;
    }
    uint64_t modulus = eq->terms[k + 1].step / unit, spare = eq->reach[k + 2] / unit;
    uint64_t step = eq->terms[k].step / unit;
    uint64_t rest = (target / unit - step * low) % modulus;
    if (rest <= spare) {
        return true;
    }
    uint64_t x = first_multiple_within(step % modulus, modulus, rest - spare, rest);
    return x <= high - low;
}

/* ---- search ---- */

/* x with step * x % unit == target % unit: the smallest, and how far apart they are.  False:
 * none. */
static bool
solve_congruence(uint64_t step, uint64_t unit, uint64_t target, uint64_t *first,
                 uint64_t *apart)
{
    uint64_t common = layout_common_divisor(step, unit);
    *first = 0;
    *apart = unit / common;
    if (target % common != 0) {
        /* mutant survives (constant returned): the search tries more values, and finds the same */
        return false;
    }
    uint64_t wanted = target / common % *apart;
    *first = first_multiple_within(step / common % *apart, *apart, wanted, wanted);
    return *first != UINT64_MAX;
}

static bool
may_go_on(equation *eq)
{
    if (eq->steps_left-- > 0) {
        return true;
    }
    eq->steps_left = OVERLAP_SEARCH_STEPS;
    /* mutant survives (not): only slower */
    return !eq->is_limited && (eq->keep_on == NULL || eq->keep_on(eq->context));
}

static overlap_answer
search(equation *eq, int k, uint64_t target)
{
    if (target > eq->reach[k]) {
        return OVERLAP_NO;
    }
    if (k >= eq->full) {
        return target == 0 || target % eq->unit[k] == 0 ? OVERLAP_YES : OVERLAP_NO;
    }
    uint64_t tail = eq->unit[eq->full];
    if (k == eq->full - 2 && eq->terms[k].step % tail == 0 &&
        eq->terms[k + 1].step % tail == 0) {
        return solve_pair(eq, k, target) ? OVERLAP_YES : OVERLAP_NO;
    }
    uint64_t low, high, first, apart;
    if (!find_span(eq, k, target, &low, &high) ||
        /* mutant survives (off by one): the search tries more values, and finds the same */
        !solve_congruence(eq->terms[k].step, eq->unit[k + 1], target, &first, &apart)) {
        return OVERLAP_NO;
    }
    if (low > first) {
        uint64_t skipped = (low - first) / apart + ((low - first) % apart != 0);
        first += skipped * apart;
    }
    for (uint64_t x = first; x <= high; x += apart) {
        if (!may_go_on(eq)) {
            return OVERLAP_STOPPED;
        }
        overlap_answer answer = search(eq, k + 1, target - eq->terms[k].step * x);
        if (answer != OVERLAP_NO || high - x < apart) {
            return answer;
        }
    }
    return OVERLAP_NO;
}

/* ---- counting ---- */

/* bits |= bits << shift; the highest words first, since they read the lower ones. */
static void
shift_in(uint64_t *bits, uint64_t nwords, uint64_t shift)
{
    uint64_t words = shift / 64;
    unsigned rest = (unsigned)(shift % 64);
    for (uint64_t i = nwords; i-- > words;) {
        uint64_t moved = bits[i - words] << rest;
        /* mutant survives (bound #1): one element more is read: asan sees it */
        if (rest > 0 && i > words) {
            moved |= bits[i - words - 1] >> (64 - rest);
        }
        bits[i] |= moved;
    }
}

/* A bit for every sum up to the target.  OVERLAP_STOPPED: too many of them. */
static overlap_answer
count_out(const equation *eq)
{
    uint64_t nwords = eq->target / 64 + 1;
    uint64_t *bits = eq->target < MAX_COUNTED_POSITIONS ? calloc(nwords, sizeof *bits) : NULL;
    if (bits == NULL) {
        return OVERLAP_STOPPED;
    }
    bits[0] = 1;
    for (int k = 0; k < eq->nterms; k++) {
        uint64_t left = eq->terms[k].limit;
        /* any number up to the limit is a sum of these */
        for (uint64_t many = 1; left > 0; many *= 2) {
            many = smaller(many, left);
            shift_in(bits, nwords, eq->terms[k].step * many);
            left -= many;
        }
    }
    bool is_reached = bits[eq->target / 64] >> (eq->target % 64) & 1;
    free(bits);
    return is_reached ? OVERLAP_YES : OVERLAP_NO;
}

overlap_answer
layout_overlap(const overlap_items *a, const overlap_items *b, bool (*keep_on)(void *context),
               void *context)
{
    uint64_t a_first, a_end, b_first, b_end;
    equation eq = {.keep_on = keep_on,
                   .context = context,
                   .is_limited = true,
                   .steps_left = OVERLAP_SEARCH_STEPS};
    if (layout_volume(a->layout) == 0 || layout_volume(b->layout) == 0) {
        return OVERLAP_NO;
    }
    find_range(a, &a_first, &a_end);
    find_range(b, &b_first, &b_end);
    if (a_first >= b_end || b_first >= a_end) {
        return OVERLAP_NO;
    }
    /* a_first + (steps of a) + p == b_end - 1 - (steps of b) - q: p and q are bytes within the
     * items. */
    eq.target = b_end - 1 - a_first;
    add_axes(&eq, a->layout);
    add_axes(&eq, b->layout);
    if (!divide(&eq, (uint64_t)a->layout->itemsize + (uint64_t)b->layout->itemsize - 2)) {
        return OVERLAP_NO;
    }
    tighten(&eq);
    measure_tails(&eq);
    overlap_answer answer = search(&eq, 0, eq.target);
    if (answer == OVERLAP_STOPPED) {
        answer = count_out(&eq);
    }
    if (answer == OVERLAP_STOPPED) {
        eq.is_limited = false;
        answer = search(&eq, 0, eq.target);
    }
    return answer;
}
