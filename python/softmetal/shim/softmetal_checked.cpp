/* softmetal_checked.cpp: what the instructions of a checked kernel do before they touch memory.
 *
 * Owns:    the section softmetal_sites: a soft_site for each of those instructions.
 * Calls:   the run time, through softmetal_image.runtime.
 * Threads: each function is called by the kernel's thread, on its stack.
 *
 * Clang's -fsanitize=thread puts a call before each read and write, checked_code.py one before
 * each copy and one that looks at the address; -fsanitize=array-bounds and its kind, where an
 * operation has no meaning.  Here they are answered; none of clang's run time libraries is linked.
 * This file is compiled without those flags, to code that clang then inlines into the kernel's
 * (compiler.py): nearly all accesses are answered by a look at the instruction's own site.
 */
#include "softmetal_kernel.h"

#define EXPORT extern "C" __attribute__((visibility("hidden"), always_inline))

extern "C" soft_image softmetal_image;
extern "C" __attribute__((visibility("hidden"))) soft_watch softmetal_watch;

using size = __SIZE_TYPE__;
using soft_i64 = __INT64_TYPE__;

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

/* ---- what has no meaning: the launch is stopped, so none of these returns ---- */

#define SITE (static_cast<const char *>(__builtin_return_address(0)) - 1)
#define ENDS extern "C" __attribute__((visibility("hidden"), noinline, noreturn))

__attribute__((noreturn)) static void stop(soft_u32 why, soft_u64 first, soft_u64 second,
                                           const void *site) {
    softmetal_image.runtime->stop(why, first, second, site);
    __builtin_trap();
}

ENDS void softmetal_misaligned(const volatile void *address, size mask) {
    stop(SOFT_STOP_MISALIGNED, reinterpret_cast<soft_u64>(address), mask + 1, SITE);
}
/* `mask`: the bits that are 0 in an address where such a thing may lie. */
EXPORT void softmetal_aligned(const volatile void *address, size mask) {
    if (__builtin_expect((reinterpret_cast<soft_u64>(address) & mask) != 0, 0))
        softmetal_misaligned(address, mask);
}

/* How clang describes a type to UndefinedBehaviorSanitizer's run time. */
struct type {
    soft_u16 kind;    /* 0: an integer */
    soft_u16 integer; /* is it signed? And above: the logarithm of its bits */
    char name[1];     /* 'float[64]' */
};
struct place {
    const char *file;
    soft_u32 line, column;
};
struct operation { /* the array and the index; what is shifted, and by what */
    place at;
    const type *of, *with;
};

static soft_u64 bits_of(const type &type) { return soft_u64(1) << (type.integer >> 1); }
/* Clang hands over an integer without the copies of its sign. */
static soft_u64 value_of(const type &type, size handed) {
    soft_u64 unused = 64 - bits_of(type);
    bool is_signed = type.kind == 0 && (type.integer & 1) != 0;
    return is_signed ? soft_u64(soft_i64(handed << unused) >> unused) : handed;
}
/* Read the first extent in the array's name. */
static soft_u64 count_of(const type &array) {
    const char *at = array.name;
    while (*at != '\0' && *at != '[')
        at++;
    soft_u64 count = 0;
    while (*at != '\0' && *++at >= '0' && *at <= '9')
        count = count * 10 + soft_u64(*at - '0');
    return count;
}

ENDS void __ubsan_handle_out_of_bounds_abort(const operation *what, size index) {
    stop(SOFT_STOP_ARRAY, value_of(*what->with, index), count_of(*what->of), SITE);
}
ENDS void __ubsan_handle_shift_out_of_bounds_abort(const operation *what, size, size by) {
    stop(SOFT_STOP_SHIFT, value_of(*what->with, by), bits_of(*what->of), SITE);
}
ENDS void __ubsan_handle_divrem_overflow_abort(void *, size, size) {
    stop(SOFT_STOP_DIVISION, 0, 0, SITE);
}

/* ---- atomics ---- */

/* Metal has none of which the address is no multiple of their size. */
__attribute__((always_inline)) static inline void touch_atomic(const volatile void *address,
                                                               size nbytes, soft_u32 how) {
    touch(address, nbytes, how | SOFT_ACCESS_ATOMIC);
    softmetal_aligned(address, nbytes - 1);
}

#define CHANGES (SOFT_ACCESS_WRITE | SOFT_ACCESS_READ)

/* Metal's atomics are relaxed; the order that the kernel asks for is not weaker. */
#define CHANGE(BITS, T, NAME)                                                                  \
    EXPORT T __tsan_atomic##BITS##_##NAME(volatile T *p, T value, int) {                       \
        touch_atomic(p, sizeof *p, CHANGES);                                                   \
        return __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);                                    \
    }

#define EXCHANGE(BITS, T, KIND, WEAK)                                                          \
    EXPORT int __tsan_atomic##BITS##_compare_exchange_##KIND(volatile T *p, T *expected,       \
                                                             T value, int, int) {              \
        touch_atomic(p, sizeof *p, CHANGES);                                                   \
        return __atomic_compare_exchange_n(p, expected, value, WEAK, __ATOMIC_SEQ_CST,         \
                                           __ATOMIC_SEQ_CST);                                  \
    }

#define ATOMIC(BITS, T)                                                                        \
    EXPORT T __tsan_atomic##BITS##_load(const volatile T *p, int) {                            \
        touch_atomic(p, sizeof *p, 0);                                                         \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
    }                                                                                          \
    EXPORT void __tsan_atomic##BITS##_store(volatile T *p, T value, int) {                     \
        touch_atomic(p, sizeof *p, SOFT_ACCESS_WRITE);                                         \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                          \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_exchange(volatile T *p, T value, int) {                     \
        touch_atomic(p, sizeof *p, CHANGES);                                                   \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                \
    }                                                                                          \
    EXPORT T __tsan_atomic##BITS##_compare_exchange_val(volatile T *p, T expected, T value,    \
                                                        int, int) {                            \
        touch_atomic(p, sizeof *p, CHANGES);                                                   \
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
