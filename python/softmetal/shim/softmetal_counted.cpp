/* softmetal_counted.cpp: what a counting kernel does before each access, beside counted_code.py.
 *
 * Owns:    nothing.
 * Calls:   the run time, through softmetal_image.runtime.
 * Threads: the kernel's thread that calls it, on its stack.
 *
 * Compiled apart and then inlined, as softmetal_checked.cpp.
 */
#include "softmetal_kernel.h"

extern "C" soft_image softmetal_image;
extern "C" __attribute__((visibility("hidden"))) soft_watch softmetal_watch;

static_assert(sizeof(soft_counted) == 152, "counted_code.py writes a table of them");

__attribute__((noinline, preserve_most)) static void ask(const void *address,
                                                         soft_counted *site) {
    const void *here = static_cast<const char *>(__builtin_return_address(0)) - 1;
    if (softmetal_image.runtime) softmetal_image.runtime->count(address, site, here);
}

/* Mostly a lane goes on where the lane before it stopped: within the same memory, one step on. */
extern "C" __attribute__((visibility("hidden"), always_inline)) void
softmetal_count(const void *address, soft_counted *site) {
    soft_u64 at = reinterpret_cast<soft_u64>(address);
    soft_u32 thread = softmetal_watch.thread;
    if (site->thread != thread) {
        site->thread = thread;
        site->at = site->first;
    }
    soft_together *one = site->at;
    if (__builtin_expect(at - site->low < site->span && at == one->next, 1)) {
        one->next = at + one->step;
        one->lanes |= 1u << thread % SOFT_SIMD_WIDTH;
        site->at = one + 1;
    } else
        ask(address, site);
}

/* The same where no thread comes twice: the run time looks at all lanes at once.  Mostly it has foreseen
 * where they are (count_once.c). */
extern "C" __attribute__((visibility("hidden"), always_inline)) void
softmetal_count_once(const void *address, soft_counted *site, soft_u64 *once) {
    soft_u64 at = reinterpret_cast<soft_u64>(address);
    if (__builtin_expect(at == site->ahead, 1))
        site->ahead = at + site->step;
    else if (__builtin_expect(at - site->low < site->span, 1))
        once[softmetal_watch.thread % SOFT_SIMD_WIDTH] = at;
    else
        ask(address, site);
}
