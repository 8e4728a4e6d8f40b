/* check_shadow.c: see check_shadow.h.
 *
 * Owns:    the cells of a shadow.
 * Calls:   mmap.
 * Threads: one at a time.
 */
#include "softmetal/kernels/check_shadow.h"

#include <sys/mman.h>

#define LARGEST_SHIFT 4
#define BASE_ALIGNMENT ((uintptr_t)1 << LARGEST_SHIFT)

static size_t
cells_nbytes(const soft_shadow *shadow)
{
    return ((shadow->nbytes >> shadow->shift) + 1) * sizeof(soft_cell);
}

static soft_cell *
map_cells(const soft_shadow *shadow)
{
    void *cells = mmap(NULL, cells_nbytes(shadow), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) {
        return NULL;
    }
    madvise(cells, cells_nbytes(shadow),
            MADV_HUGEPAGE); /* half of the time is page faults else */
    return cells;
}

void
soft_shadow_open(soft_shadow *shadow, uintptr_t address, size_t nbytes, unsigned alignment)
{
    uintptr_t base = address & ~(BASE_ALIGNMENT - 1);
    *shadow = (soft_shadow){.base = base, .nbytes = nbytes + (address - base)};
    unsigned least = alignment > BASE_ALIGNMENT ? BASE_ALIGNMENT : alignment | !alignment;
    shadow->shift = (unsigned)__builtin_ctzl((address - base) | least);
    shadow->cells = map_cells(shadow);
}

void
soft_shadow_close(soft_shadow *shadow)
{
    if (shadow->cells != NULL) {
        munmap(shadow->cells, cells_nbytes(shadow));
        shadow->cells = NULL;
    }
}

static bool
is_empty(const soft_cell *cell)
{
    return cell->write.time == 0 && cell->reads[0].time == 0;
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
    finer.cells = map_cells(&finer);
    unsigned more = shadow->shift - shift;
    size_t count = finer.cells == NULL ? 0 : (finer.nbytes >> shift) + 1;
    for (size_t i = 0; i < count; i++) {
        const soft_cell *cell = &shadow->cells[i >> more];
        if (!is_empty(cell)) { /* pages that nobody touched stay so */
            finer.cells[i] = *cell;
        }
    }
    soft_shadow_close(shadow);
    *shadow = finer;
}
