/* softmetal_checked.cpp: what the instructions of a checked kernel call before they touch memory.
 *
 * Owns:    nothing.
 * Calls:   the run time, through softmetal_image.runtime.
 * Threads: each function is called by the kernel's thread, on its stack.
 *
 * Clang's -fsanitize=thread puts a call before each read and write, and its -fsanitize=array-bounds
 * one where an index is too large.  Here they are answered; none of clang's run time libraries is
 * linked.  This file is compiled without those flags.  The site is the last byte of the call.
 */
#include "softmetal_kernel.h"

#define EXPORT extern "C" __attribute__((visibility("hidden"), noinline))
#define SITE (static_cast<const char *>(__builtin_return_address(0)) - 1)

extern "C" soft_image softmetal_image;

using size = __SIZE_TYPE__;

extern "C" void *memcpy(void *to, const void *from, size nbytes) noexcept;
extern "C" void *memmove(void *to, const void *from, size nbytes) noexcept;
extern "C" void *memset(void *to, int byte, size nbytes) noexcept;

/* While an image is loaded, its constructors write to it, and there is no run time yet. */
static inline void touch(const volatile void *address, size nbytes, soft_u32 how,
                         const void *site) {
    if (softmetal_image.runtime)
        softmetal_image.runtime->access(const_cast<const void *>(address), nbytes, how, site);
}

#define TOUCH(NAME, N, HOW)                                                                    \
    EXPORT void NAME##N(void *p) { touch(p, N, HOW, SITE); }
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

EXPORT void __tsan_read_range(void *p, size nbytes) { touch(p, nbytes, 0, SITE); }
EXPORT void __tsan_write_range(void *p, size nbytes) {
    touch(p, nbytes, SOFT_ACCESS_WRITE, SITE);
}

EXPORT void *__tsan_memcpy(void *to, const void *from, size nbytes) {
    touch(from, nbytes, 0, SITE);
    touch(to, nbytes, SOFT_ACCESS_WRITE, SITE);
    return memcpy(to, from, nbytes);
}

EXPORT void *__tsan_memmove(void *to, const void *from, size nbytes) {
    touch(from, nbytes, 0, SITE);
    touch(to, nbytes, SOFT_ACCESS_WRITE, SITE);
    return memmove(to, from, nbytes);
}

EXPORT void *__tsan_memset(void *to, int byte, size nbytes) {
    touch(to, nbytes, SOFT_ACCESS_WRITE, SITE);
    return memset(to, byte, nbytes);
}

#define CHANGES (SOFT_ACCESS_WRITE | SOFT_ACCESS_READ | SOFT_ACCESS_ATOMIC)

/* Metal's atomics are relaxed; the order that the kernel asks for is not weaker. */
#define CHANGE(BITS, T, NAME)                                                                  \
    EXPORT T __tsan_atomic##BITS##_##NAME(volatile T *p, T value, int) {                       \
        touch(p, sizeof *p, CHANGES, SITE);                                                    \
        return __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);                                    \
    }

#define EXCHANGE(BITS, T, KIND, WEAK)                                                          \
    EXPORT int __tsan_atomic##BITS##_compare_exchange_##KIND(volatile T *p, T *expected,       \
                                                             T value, int, int) {              \
        touch(p, sizeof *p, CHANGES, SITE);                                                    \
        return __atomic_compare_exchange_n(p, expected, value, WEAK, __ATOMIC_SEQ_CST,         \
                                           __ATOMIC_SEQ_CST);                                  \
    }

#define ATOMIC(BITS, T)                                                                        \
    EXPORT T __tsan_atomic##BITS##_load(const volatile T *p, int) {                            \
        touch(p, sizeof *p, SOFT_ACCESS_ATOMIC, SITE);                                         \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
    }                                                                                          \
    EXPORT void __tsan_atomic##BITS##_store(volatile T *p, T value, int) {                     \
        touch(p, sizeof *p, SOFT_ACCESS_WRITE | SOFT_ACCESS_ATOMIC, SITE);                     \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                          \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_exchange(volatile T *p, T value, int) {                     \
        touch(p, sizeof *p, CHANGES, SITE);                                                    \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_compare_exchange_val(volatile T *p, T expected, T value,    \
                                                        int, int) {                            \
        touch(p, sizeof *p, CHANGES, SITE);                                                    \
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
    touch(nullptr, 0, SOFT_ACCESS_FENCE, SITE);
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
#define ENDS extern "C" __attribute__((visibility("hidden"), noinline, noreturn))

ENDS void __ubsan_handle_out_of_bounds_abort(void *, size) {
    softmetal_image.runtime->out_of_bounds(SITE);
    __builtin_trap();
}
ENDS void __ubsan_handle_divrem_overflow_abort(void *, size, size) {
    softmetal_image.runtime->divided_by_zero(SITE);
    __builtin_trap();
}
