/* softmetal_runtime.h: how the library asks the run time: barriers, lanes, threadgroup memory.
 *
 * Owns:    the sections softmetal_syncs (a byte for each place that waits) and
 *          softmetal_variables (number, size and alignment of each threadgroup variable).
 * Calls:   softmetal_image.runtime.
 * Threads: each function speaks for the kernel's thread that calls it.
 *
 * Threads that take different branches must wait at different places, so calls that wait may be
 * neither merged nor moved: that is what `convergent` says, and -fconvergent-functions of those
 * functions of the kernel that call them.  The functions that call the run time are `optnone`:
 * clang would find no convergent call in them and drop the word.
 */
#ifndef SOFTMETAL_RUNTIME_H
#define SOFTMETAL_RUNTIME_H

#include "softmetal_kernel.h"
#include "softmetal_vectors.h"

#define SOFTMETAL_CONVERGENT SOFTMETAL_INLINE __attribute__((convergent))
#define SOFTMETAL_WAITS                                                                        \
    __attribute__((noinline, optnone, convergent, nomerge, not_tail_called, nodebug,           \
                   no_sanitize("thread", "bounds"))) inline
/* In such a function: where it is called, an address within the call.  nomerge keeps two places
 * apart, also where two branches wait with the same words. */
#define SOFTMETAL_CALLER (static_cast<const char *>(__builtin_return_address(0)) - 1)

extern "C" {
extern __attribute__((visibility("default"))) soft_image softmetal_image;
extern const soft_u8 __start_softmetal_syncs[] __attribute__((weak, visibility("hidden")));
extern const soft_u64 __start_softmetal_variables[] __attribute__((weak, visibility("hidden")));
extern const soft_u64 __stop_softmetal_variables[] __attribute__((weak, visibility("hidden")));
/* regions.py makes it, where it can */
extern const soft_regions softmetal_regions __attribute__((weak, visibility("hidden")));
#if SOFTMETAL_IS_CHECKED
__attribute__((visibility("hidden"))) inline soft_watch softmetal_watch;
extern soft_site __start_softmetal_sites[] __attribute__((weak, visibility("hidden")));
extern soft_site __stop_softmetal_sites[] __attribute__((weak, visibility("hidden")));
extern soft_counted __start_softmetal_counted[] __attribute__((weak, visibility("hidden")));
extern soft_counted __stop_softmetal_counted[] __attribute__((weak, visibility("hidden")));
extern soft_u64 __start_softmetal_executions[] __attribute__((weak, visibility("hidden")));
extern soft_u64 __stop_softmetal_executions[] __attribute__((weak, visibility("hidden")));
extern const char __start_softmetal_operations[] __attribute__((weak, visibility("hidden")));
#endif
}

namespace softmetal {
/* The address of the instruction that asks: the linker knows its line. */
#if defined(__x86_64__)
#define SOFTMETAL_ADDRESS "1: leaq 1b(%%rip), %0"
#elif defined(__aarch64__)
#define SOFTMETAL_ADDRESS "1: adr %0, 1b"
#else
#error "kernels run on x86-64 and arm64"
#endif
SOFTMETAL_CONVERGENT const void *this_site() {
    const void *site;
    __asm__ volatile(SOFTMETAL_ADDRESS : "=r"(site));
    return site;
}
/* The assembler gives a line to the first byte that it writes from there on, be it of another
 * section: before such a byte an instruction takes it, or those behind would have none. */
#if SOFTMETAL_IS_CHECKED
#define SOFTMETAL_KEEPS_LINE "nop\n"
#else
#define SOFTMETAL_KEEPS_LINE
#endif
/* In a function that waits, or as good as waits. */
#define SOFTMETAL_MARK                                                                         \
    SOFTMETAL_KEEPS_LINE ".pushsection softmetal_syncs,\"aR\"\n.byte 1\n.popsection\n"

#if SOFTMETAL_IS_CHECKED
SOFTMETAL_UNSEEN void stop_kernel_at(soft_u32 why, soft_u64 first, soft_u64 second,
                                     const void *site) {
    softmetal_image.runtime->stop(why, first, second, site);
}
SOFTMETAL_INLINE void stop_kernel(soft_u32 why, soft_u64 first, soft_u64 second) {
    stop_kernel_at(why, first, second, this_site());
}
#endif

/* What a plain kernel asks for.  regions.py puts steps of its own in the place of such calls, by their
 * names, and splits the kernel at those that wait.  Each call stays with all that it says, because
 * the functions are optnone and, not being static, of any caller. */
#if SOFTMETAL_IS_CHECKED
#define SOFTMETAL_ASKS SOFTMETAL_UNSEEN
#else
#define SOFTMETAL_ASKS __attribute__((noinline, optnone, const)) inline
#endif
SOFTMETAL_ASKS uint lane_of_thread() { return softmetal_image.runtime->self()->lane; }
/* Asking is as good as waiting: the run time knows a thread only when threads take turns. */
SOFTMETAL_CONVERGENT uint this_lane() {
    __asm__ volatile(SOFTMETAL_MARK);
    return lane_of_thread();
}

SOFTMETAL_WAITS void wait_for_group(soft_u32 mem_flags) {
    __asm__ volatile(SOFTMETAL_MARK);
    softmetal_image.runtime->threadgroup_barrier(mem_flags, SOFTMETAL_CALLER);
}
/* waits.py puts a call's number in its place. */
#define SOFTMETAL_IN_ORDER 0
#if SOFTMETAL_IS_CHECKED
SOFTMETAL_WAITS soft_u32 wait_for_lanes(soft_u32 nbytes, const void *bytes,
                                        const soft_u8 **values, soft_u32 order) {
    __asm__ volatile(SOFTMETAL_MARK);
    return softmetal_image.runtime->simd_exchange(bytes, nbytes, values, SOFTMETAL_CALLER,
                                                  order);
}
#else
SOFTMETAL_WAITS soft_u32 wait_for_lanes(soft_u32 nbytes, soft_u32 order) {
    const soft_u8 *values;
    __asm__ volatile(SOFTMETAL_MARK);
    return softmetal_image.runtime->simd_exchange(nullptr, nbytes, &values, SOFTMETAL_CALLER,
                                                  order);
}
__attribute__((noinline, optnone, pure)) inline soft_u8 *lane_values(soft_u32 nbytes,
                                                                     soft_u32 is_given) {
    return softmetal_image.runtime->simd_values(nbytes, is_given);
}
#endif

template <class T> SOFTMETAL_UNSEEN T value_at(const soft_u8 *slot) {
    T value;
    __builtin_memcpy(&value, slot, sizeof value);
    return value;
}

/* What the lanes of a SIMD-group gave each other. */
template <class T> struct gathered {
    const soft_u8 *values;
    uint lanes; /* bit i: lane i came */

    SOFTMETAL_INLINE bool has(uint lane) const {
        return lane < SOFT_SIMD_WIDTH && lanes >> lane & 1;
    }
    SOFTMETAL_INLINE T from(uint lane) const {
        return value_at<T>(values + SOFT_SIMD_STRIDE(sizeof(T)) * lane);
    }
};

/* `who`: SOFT_ALL_LANES, if none of them may be missing. */
template <class T> SOFTMETAL_CONVERGENT gathered<T> gather(T mine, soft_u32 who = 0) {
    static_assert(sizeof(T) <= SOFT_SIMD_SLOT, "a lane gives at most 64 bytes");
    gathered<T> all;
#if SOFTMETAL_IS_CHECKED
    all.lanes = wait_for_lanes(sizeof mine | who, &mine, &all.values, SOFTMETAL_IN_ORDER);
#else
    __builtin_memcpy(lane_values(sizeof mine, 0) + SOFT_SIMD_STRIDE(sizeof(T)) * this_lane(),
                     &mine, sizeof mine);
    all.lanes = wait_for_lanes(sizeof mine | who, SOFTMETAL_IN_ORDER);
    all.values = lane_values(sizeof mine, 1);
#endif
    return all;
}

SOFTMETAL_CONVERGENT void wait_for_all_lanes() {
#if SOFTMETAL_IS_CHECKED
    const soft_u8 *values;
    wait_for_lanes(SOFT_ALL_LANES, nullptr, &values, SOFTMETAL_IN_ORDER);
#else
    wait_for_lanes(SOFT_ALL_LANES, SOFTMETAL_IN_ORDER);
#endif
}

SOFTMETAL_ASKS void *variable_address(soft_u32 number, soft_u64 nbytes, soft_u64 alignment) {
    return softmetal_image.runtime->threadgroup_variable(number, nbytes, alignment);
}
/* A variable that the kernel declares as `threadgroup`, by the translator's number.  It lies as its
 * type asks or, if that is more, as a type with the attributes of its declaration. */
template <int number, class T, class declared_with = T>
SOFTMETAL_INLINE T &threadgroup_variable() {
    constexpr soft_u64 alignment =
        alignof(T) > alignof(declared_with) ? alignof(T) : alignof(declared_with);
    __asm__ volatile(SOFTMETAL_KEEPS_LINE ".pushsection softmetal_variables,\"aR\"\n.balign 8\n"
                                          ".quad %c0, %c1, %c2\n.popsection" ::"i"(number),
                     "i"(sizeof(T)), "i"(alignment));
    return *static_cast<T *>(variable_address(number, sizeof(T), alignment));
}

/* The bytes that the variables take together, each counted once however often it is inlined. */
SOFTMETAL_UNSEEN soft_u64 all_variables_nbytes() {
    soft_u64 nbytes = 0;
    const soft_u64 *begin = __start_softmetal_variables, *end = __stop_softmetal_variables;
    for (const soft_u64 *v = begin; v < end; v += 3) {
        bool is_known = false;
        for (const soft_u64 *w = begin; w < v; w += 3)
            is_known |= w[0] == v[0] && w[1] == v[1];
        if (!is_known) nbytes = (nbytes + v[2] - 1) / v[2] * v[2] + v[1];
    }
    return nbytes;
}
} // namespace softmetal

#endif /* SOFTMETAL_RUNTIME_H */
