/* check_shadow.c: see check_shadow.h.
 *
 * Owns:    the cells of a shadow.
 * Calls:   mmap.
 * Threads: one at a time.
 */
#include "softmetal/checker/check_shadow.h"

#include <sys/mman.h>

#define LARGEST_SHIFT 4
#define LARGE_PAGE ((size_t)2 << 20)
#define BASE_ALIGNMENT ((uintptr_t)1 << LARGEST_SHIFT)

static size_t
block_count(const soft_shadow *shadow)
{
    return (shadow->nbytes >> shadow->shift) / SOFT_BLOCK + 1;
}

static size_t
pages_nbytes(const soft_shadow *shadow)
{
    return block_count(shadow) * (1 + SOFT_BLOCK) * sizeof(soft_cell);
}

/* The blocks come first: in most launches they are all that is touched, so they get large pages,
 * which begin at a multiple of their size; else half of the time is page faults. */
static void
map_cells(soft_shadow *shadow)
{
    size_t nbytes = pages_nbytes(shadow);
    bool is_large = block_count(shadow) * sizeof(soft_cell) >= LARGE_PAGE / 2;
    shadow->mapped_nbytes = nbytes + (is_large ? LARGE_PAGE : 0);
    void *pages = mmap(NULL, shadow->mapped_nbytes, PROT_READ | PROT_WRITE,
                       /* mutant survives (dropped flag #2): a system may refuse then */
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        return;
    }
    uintptr_t begin = (uintptr_t)pages;
    if (is_large) {
        begin = (begin + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1);
    }
    madvise((void *)begin, nbytes, MADV_HUGEPAGE);
    shadow->mapped = pages;
    shadow->blocks = (soft_cell *)begin;
    shadow->cells = shadow->blocks + block_count(shadow);
}

void
soft_shadow_open(soft_shadow *shadow, uintptr_t address, size_t nbytes, unsigned alignment)
{
    uintptr_t base = address & ~(BASE_ALIGNMENT - 1);
    *shadow = (soft_shadow){.base = base, .nbytes = nbytes + (address - base)};
    unsigned least = alignment > BASE_ALIGNMENT ? BASE_ALIGNMENT : alignment | !alignment;
    shadow->shift = (unsigned)__builtin_ctzl((address - base) | least);
    map_cells(shadow);
}

void
soft_shadow_close(soft_shadow *shadow)
{
    if (shadow->cells != NULL) {
        munmap(shadow->mapped, shadow->mapped_nbytes);
        shadow->cells = shadow->blocks = NULL;
    }
}

static bool
is_empty(const soft_cell *cell)
{
    return (cell->write.time | cell->reads[0].time) == 0;
}

/* A block's mark, as it is of the grain that is `offset` grains after the first. */
static soft_mark
mark_at(soft_mark mark, uint32_t offset)
{
    return mark.time == 0 ? mark : (soft_mark){mark.time, mark.who + offset};
}

void
soft_shadow_split(soft_shadow *shadow, size_t block)
{
    soft_cell all = shadow->blocks[block];
    shadow->blocks[block].write.time = SOFT_SPLIT;
    if (is_empty(&all)) { /* so are the cells: pages that nobody touched stay so */
        return;
    }
    soft_cell *cells = &shadow->cells[block * SOFT_BLOCK];
    for (uint32_t i = 0; i < SOFT_BLOCK; i++) {
        cells[i].write = mark_at(all.write, i);
        cells[i].reads[0] = mark_at(all.reads[0], i);
        cells[i].reads[1] = mark_at(all.reads[1], i);
    }
}

void
soft_shadow_fit(soft_shadow *shadow, uintptr_t at, size_t nbytes)
{
    unsigned shift = (unsigned)__builtin_ctzl((at - shadow->base) | nbytes | BASE_ALIGNMENT);
    if (shadow->cells == NULL || shift >= shadow->shift) {
        return;
    }
    soft_shadow finer = *shadow;
    finer.shift = shift;
    finer.cells = NULL;
    map_cells(&finer);
    size_t pieces = (size_t)1 << (shadow->shift - shift);
    size_t count = finer.cells == NULL ? 0 : block_count(shadow) * SOFT_BLOCK;
    size_t room = block_count(&finer) * SOFT_BLOCK;
    for (size_t i = 0; i < count; i++) {
        if (is_empty(&shadow->blocks[i / SOFT_BLOCK])) {
            i += SOFT_BLOCK - 1;
            continue;
        }
        const soft_cell *cell = soft_shadow_cell(shadow, i);
        for (size_t piece = 0; !is_empty(cell) && piece < pieces; piece++) {
            if (i * pieces + piece < room) {
                *soft_shadow_cell(&finer, i * pieces + piece) = *cell;
            }
        }
    }
    soft_shadow_close(shadow);
    *shadow = finer;
}
