/* layout_overlap.h: do two strided layouts touch a byte in common?
 *
 * Owns:    nothing.
 * Threads: pure: any thread, with or without the GIL.
 * Exact:   the answer is the truth and not a bound.  The question is a linear equation with
 *          bounded unknowns, which is NP-hard in general.  Dense arrays, slices of one array
 *          and any two one-dimensional views are answered in a few steps; after
 *          OVERLAP_SEARCH_STEPS of search the rest is counted out in a bit per position (at
 *          most 256 MiB, gone on return: time proportional to the bytes both span, times the
 *          logarithms of the extents); what spans more than that is searched to the end, which
 *          can take as long as all pairs of items.
 */
#ifndef MD_LAYOUT_OVERLAP_H
#define MD_LAYOUT_OVERLAP_H

#include "arithmetic/layout.h"

#define OVERLAP_SEARCH_STEPS 100000

/* Items in memory: `address` is that of the base, to which the layout's offset is added.
 * Every byte of them lies below address 2**63. */
typedef struct overlap_items {
    const strided_layout *layout;
    uint64_t address;
} overlap_items;

typedef enum { OVERLAP_NO, OVERLAP_YES, OVERLAP_STOPPED } overlap_answer;

/* `keep_on` is called every OVERLAP_SEARCH_STEPS steps, from the thread of the call; false
 * ends the search with OVERLAP_STOPPED.  NULL: nobody asks. */
overlap_answer layout_overlap(const overlap_items *a, const overlap_items *b,
                              bool (*keep_on)(void *context), void *context);

#endif /* MD_LAYOUT_OVERLAP_H */
