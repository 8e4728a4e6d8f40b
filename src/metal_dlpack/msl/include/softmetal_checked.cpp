/* softmetal_checked.cpp: what the instructions of a checked kernel do before they touch memory.
 *
 * Owns:    the section softmetal_sites: a soft_site for each of those instructions.
 * Calls:   the run time, through softmetal_image.runtime.
 * Threads: each function is called by the kernel's thread, on its stack.
 *
 * Clang's -fsanitize=thread puts a call before each read and write, and its -fsanitize=array-bounds
 * one where an index is too large.  Here they are answered; none of clang's run time libraries is
 * linked.  This file is compiled without those flags, to code that clang then inlines into the
 * kernel's (compiler.py): nearly all accesses are answered by a look at the instruction's own site.
 */
#include "softmetal_kernel.h"

#define EXPORT extern "C" __attribute__((visibility("hidden"), always_inline))

extern "C" soft_image softmetal_image;
extern "C" __attribute__((visibility("hidden"))) soft_watch softmetal_watch;

using size = __SIZE_TYPE__;

extern "C" void *memcpy(void *to, const void *from, size nbytes) noexcept;
extern "C" void *memmove(void *to, const void *from, size nbytes) noexcept;
extern "C" void *memset(void *to, int byte, size nbytes) noexcept;

#if defined(__x86_64__)
#define ADDRESS_OF_SITE "76: leaq 77f(%%rip), %0\n"
#elif defined(__aarch64__)
#define ADDRESS_OF_SITE "76: adrp %0, 77f\nadd %0, %0, :lo12:77f\n"
#endif

/* Where it is inlined: a site of its own.  `volatile`: else clang takes two of them for one. */
__attribute__((always_inline)) static inline soft_site *this_site() {
    soft_site *site;
    static_assert(sizeof *site == 72, "the size that is reserved");
    __asm__ volatile(ADDRESS_OF_SITE ".pushsection softmetal_sites,\"aw\",@progbits\n"
                                     ".balign 8\n77: .quad 76b\n.zero 64\n.popsection"
                     : "=r"(site));
    return site;
}

/* While an image is loaded, its constructors write to it, and there is no run time yet.
 * preserve_most: the kernel's code need not save its registers for a call that is seldom made. */
__attribute__((noinline, preserve_most)) static void
ask(const volatile void *address, size nbytes, soft_u32 how, soft_site *site) {
    if (softmetal_image.runtime)
        softmetal_image.runtime->access(const_cast<const void *>(address), nbytes, how, site);
}

__attribute__((always_inline)) static inline void touch(const volatile void *address,
                                                        size nbytes, soft_u32 how) {
    ask(address, nbytes, how, this_site());
}

/* Always of the same size: answered here, if the run time has said that it may be. */
__attribute__((always_inline)) static inline void touch_item(void *address, size nbytes,
                                                             soft_u32 how) {
    soft_site *site = this_site();
    soft_u64 at = reinterpret_cast<soft_u64>(address);
    if (how == 0 && __builtin_expect(at - site->low < site->span, 1)) return;
    soft_u64 thread = softmetal_watch.thread;
    if (__builtin_expect(at == site->key + site->step * thread, 1))
        site->seen[thread] = 1;
    else
        ask(address, nbytes, how, site);
}

#define TOUCH(NAME, N, HOW)                                                                    \
    EXPORT void NAME##N(void *p) { touch_item(p, N, HOW); }
#define PLAIN(N)                                                                               \
    TOUCH(__tsan_read, N, 0)                                                                   \
    TOUCH(__tsan_write, N, SOFT_ACCESS_WRITE)                                                  \
    TOUCH(__tsan_read_write, N, SOFT_ACCESS_WRITE | SOFT_ACCESS_READ)                          \
    TOUCH(__tsan_unaligned_read, N, 0)                                                         \
    TOUCH(__tsan_unaligned_write, N, SOFT_ACCESS_WRITE)                                        \
    TOUCH(__tsan_unaligned_read_write, N, SOFT_ACCESS_WRITE | SOFT_ACCESS_READ)                \
    TOUCH(__tsan_volatile_read, N, 0)                                                          \
    TOUCH(__tsan_volatile_write, N, SOFT_ACCESS_WRITE)                                         \
    TOUCH(__tsan_unaligned_volatile_read, N, 0)                                                \
    TOUCH(__tsan_unaligned_volatile_write, N, SOFT_ACCESS_WRITE)

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

EXPORT void __tsan_read_range(void *p, size nbytes) { touch(p, nbytes, 0); }
EXPORT void __tsan_write_range(void *p, size nbytes) { touch(p, nbytes, SOFT_ACCESS_WRITE); }

EXPORT void *__tsan_memcpy(void *to, const void *from, size nbytes) {
    touch(from, nbytes, 0);
    touch(to, nbytes, SOFT_ACCESS_WRITE);
    return memcpy(to, from, nbytes);
}

EXPORT void *__tsan_memmove(void *to, const void *from, size nbytes) {
    touch(from, nbytes, 0);
    touch(to, nbytes, SOFT_ACCESS_WRITE);
    return memmove(to, from, nbytes);
}

EXPORT void *__tsan_memset(void *to, int byte, size nbytes) {
    touch(to, nbytes, SOFT_ACCESS_WRITE);
    return memset(to, byte, nbytes);
}

#define CHANGES (SOFT_ACCESS_WRITE | SOFT_ACCESS_READ | SOFT_ACCESS_ATOMIC)

/* Metal's atomics are relaxed; the order that the kernel asks for is not weaker. */
#define CHANGE(BITS, T, NAME)                                                                  \
    EXPORT T __tsan_atomic##BITS##_##NAME(volatile T *p, T value, int) {                       \
        touch(p, sizeof *p, CHANGES);                                                          \
        return __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);                                    \
    }

#define EXCHANGE(BITS, T, KIND, WEAK)                                                          \
    EXPORT int __tsan_atomic##BITS##_compare_exchange_##KIND(volatile T *p, T *expected,       \
                                                             T value, int, int) {              \
        touch(p, sizeof *p, CHANGES);                                                          \
        return __atomic_compare_exchange_n(p, expected, value, WEAK, __ATOMIC_SEQ_CST,         \
                                           __ATOMIC_SEQ_CST);                                  \
    }

#define ATOMIC(BITS, T)                                                                        \
    EXPORT T __tsan_atomic##BITS##_load(const volatile T *p, int) {                            \
        touch(p, sizeof *p, SOFT_ACCESS_ATOMIC);                                               \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
    }                                                                                          \
    EXPORT void __tsan_atomic##BITS##_store(volatile T *p, T value, int) {                     \
        touch(p, sizeof *p, SOFT_ACCESS_WRITE | SOFT_ACCESS_ATOMIC);                           \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                          \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_exchange(volatile T *p, T value, int) {                     \
        touch(p, sizeof *p, CHANGES);                                                          \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_compare_exchange_val(volatile T *p, T expected, T value,    \
                                                        int, int) {                            \
        touch(p, sizeof *p, CHANGES);                                                          \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST,              \
                                    __ATOMIC_SEQ_CST);                                         \
        return expected;                                                                       \
    }                                                                                          \
    EXCHANGE(BITS, T, strong, false)                                                           \
    EXCHANGE(BITS, T, weak, true)                                                              \
    CHANGE(BITS, T, fetch_add)                                                                 \
    CHANGE(BITS, T, fetch_sub)                                                                 \
    CHANGE(BITS, T, fetch_and)                                                                 \
    CHANGE(BITS, T, fetch_or)                                                                  \
    CHANGE(BITS, T, fetch_xor)                                                                 \
    CHANGE(BITS, T, fetch_nand)

ATOMIC(8, soft_u8)
ATOMIC(16, soft_u16)
ATOMIC(32, soft_u32)
ATOMIC(64, soft_u64)

EXPORT void __tsan_atomic_thread_fence(int) {
    touch(nullptr, 0, SOFT_ACCESS_FENCE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
EXPORT void __tsan_atomic_signal_fence(int) {}

/* The image's constructor calls it; the others are calls that have no part in a kernel. */
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void *) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void *, void *) {}
EXPORT void __tsan_vptr_read(void *) {}

/* Neither returns: the launch is stopped. */
#define SITE (static_cast<const char *>(__builtin_return_address(0)) - 1)
#define ENDS extern "C" __attribute__((visibility("hidden"), noinline, noreturn))

ENDS void __ubsan_handle_out_of_bounds_abort(void *, size) {
    softmetal_image.runtime->out_of_bounds(SITE);
    __builtin_trap();
}
ENDS void __ubsan_handle_divrem_overflow_abort(void *, size, size) {
    softmetal_image.runtime->divided_by_zero(SITE);
    __builtin_trap();
}
