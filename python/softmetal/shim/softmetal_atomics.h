/* softmetal_atomics.h: atomic types and their functions.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: each function is one atomic access, relaxed unless the kernel asks for more.
 */
#ifndef SOFTMETAL_ATOMICS_H
#define SOFTMETAL_ATOMICS_H

#include "softmetal_synchronization.h"

namespace metal {
template <class T> struct _atomic {
    T value;
};
template <class T> using atomic = _atomic<T>;
} // namespace metal

typedef metal::_atomic<int> atomic_int;
typedef metal::_atomic<uint> atomic_uint;
typedef metal::_atomic<long> atomic_long;
typedef metal::_atomic<ulong> atomic_ulong;
typedef metal::_atomic<bool> atomic_bool;
typedef metal::_atomic<float> atomic_float;

namespace softmetal {
template <class T> inline constexpr bool is_int = __is_same(T, int) || __is_same(T, uint);
template <class T> inline constexpr bool is_moved =
    is_int<T> || __is_same(T, bool) || __is_same(T, float);
template <class T> inline constexpr bool has_bits = is_int<T> || __is_same(T, bool);
template <class T> inline constexpr bool is_added = is_int<T> || __is_same(T, float);
} // namespace softmetal

/* Behind the parameters of a function that Metal has for some types, and in one order.
 * SPEC Metal Shading Language Specification 3.2, 6.15.1 Memory Order, 6.15.2 Atomic Types. */
#define SOFTMETAL_TAKES(name, condition, types)                                                \
    __attribute__((                                                                            \
        diagnose_if(!condition,                                                                \
                    "Metal has " name " for " types                                            \
                    " alone: use one of them, or change an atomic_uint "                       \
                    "that holds the value in a loop of atomic_compare_exchange_weak_explicit", \
                    "error")))
#define SOFTMETAL_RELAXED(order)                                                               \
    __attribute__((diagnose_if(order != memory_order_relaxed,                                  \
                               "an atomic operation takes memory_order_relaxed alone: write "  \
                               "atomic_thread_fence beside it for another order",              \
                               "error")))
#define SOFTMETAL_MOVES(name, order)                                                           \
    SOFTMETAL_TAKES(name, softmetal::is_moved<T>,                                              \
                    "atomic_int, atomic_uint, atomic_bool and atomic_float")                   \
    SOFTMETAL_RELAXED(order)

namespace metal {
using ::atomic_bool, ::atomic_float, ::atomic_int, ::atomic_long, ::atomic_uint, ::atomic_ulong;

template <class T, class U>
SOFTMETAL_INLINE void atomic_store_explicit(volatile _atomic<T> *object, U desired,
                                            memory_order order,
                                            thread_scope = thread_scope_device)
    SOFTMETAL_MOVES("atomic_store_explicit", order) {
    T wanted = T(desired);
    __atomic_store(&object->value, &wanted, order);
}
template <class T>
SOFTMETAL_INLINE T atomic_load_explicit(const volatile _atomic<T> *object, memory_order order,
                                        thread_scope = thread_scope_device)
    SOFTMETAL_MOVES("atomic_load_explicit", order) {
    T found;
    __atomic_load(&object->value, &found, order);
    return found;
}
template <class T, class U>
SOFTMETAL_INLINE T atomic_exchange_explicit(volatile _atomic<T> *object, U desired,
                                            memory_order order,
                                            thread_scope = thread_scope_device)
    SOFTMETAL_MOVES("atomic_exchange_explicit", order) {
    T wanted = T(desired), found;
    __atomic_exchange(&object->value, &wanted, &found, order);
    return found;
}
template <class T, class U> SOFTMETAL_INLINE bool
atomic_compare_exchange_weak_explicit(volatile _atomic<T> *object, T *expected, U desired,
                                      memory_order success, memory_order failure,
                                      thread_scope = thread_scope_device)
    SOFTMETAL_MOVES("atomic_compare_exchange_weak_explicit", success)
        SOFTMETAL_RELAXED(failure) {
    T wanted = T(desired);
    return __atomic_compare_exchange(&object->value, expected, &wanted, true, success, failure);
}

/* An integer's is one instruction; a float's retries until nobody came between. */
#define SOFTMETAL_ATOMIC(name, builtin, combined, condition, types)                            \
    template <class T, class U>                                                                \
    SOFTMETAL_INLINE T atomic_fetch_##name##_explicit(volatile _atomic<T> *object, U operand,  \
                                                      memory_order order,                      \
                                                      thread_scope = thread_scope_device)      \
        SOFTMETAL_TAKES("atomic_fetch_" #name "_explicit", condition, types)                   \
            SOFTMETAL_RELAXED(order) {                                                         \
        T b = T(operand);                                                                      \
        if constexpr (__is_integral(T) && !__is_same(T, bool)) {                               \
            return builtin(&object->value, b, order);                                          \
        } else {                                                                               \
            T a;                                                                               \
            __atomic_load(&object->value, &a, __ATOMIC_RELAXED);                               \
            for (T next = T(combined);                                                         \
                 !__atomic_compare_exchange(&object->value, &a, &next, true, order,            \
                                            __ATOMIC_RELAXED);                                 \
                 next = T(combined)) {                                                         \
            }                                                                                  \
            return a;                                                                          \
        }                                                                                      \
    }
SOFTMETAL_ATOMIC(add, __atomic_fetch_add, a + b, softmetal::is_added<T>,
                 "atomic_int, atomic_uint and atomic_float")
SOFTMETAL_ATOMIC(sub, __atomic_fetch_sub, a - b, softmetal::is_added<T>,
                 "atomic_int, atomic_uint and atomic_float")
SOFTMETAL_ATOMIC(and, __atomic_fetch_and, bool(a) & bool(b), softmetal::has_bits<T>,
                 "atomic_int, atomic_uint and atomic_bool")
SOFTMETAL_ATOMIC(or, __atomic_fetch_or, bool(a) | bool(b), softmetal::has_bits<T>,
                 "atomic_int, atomic_uint and atomic_bool")
SOFTMETAL_ATOMIC(xor, __atomic_fetch_xor, bool(a) ^ bool(b), softmetal::has_bits<T>,
                 "atomic_int, atomic_uint and atomic_bool")
SOFTMETAL_ATOMIC(min, __atomic_fetch_min, b < a ? b : a, softmetal::is_int<T>,
                 "atomic_int and atomic_uint")
SOFTMETAL_ATOMIC(max, __atomic_fetch_max, a < b ? b : a, softmetal::is_int<T>,
                 "atomic_int and atomic_uint")
#undef SOFTMETAL_ATOMIC

/* Of 64 bits, without a result. */
template <class U> SOFTMETAL_INLINE void atomic_min_explicit(volatile atomic_ulong *object,
                                                             U operand, memory_order order)
    SOFTMETAL_RELAXED(order) {
    __atomic_fetch_min(&object->value, ulong(operand), order);
}
template <class U> SOFTMETAL_INLINE void atomic_max_explicit(volatile atomic_ulong *object,
                                                             U operand, memory_order order)
    SOFTMETAL_RELAXED(order) {
    __atomic_fetch_max(&object->value, ulong(operand), order);
}
#undef SOFTMETAL_MOVES
#undef SOFTMETAL_RELAXED
#undef SOFTMETAL_TAKES

/* What space_conversions.py has clang call instead, where address spaces are told apart: device
 * and threadgroup memory have numbers, a thread's has none. */
#define SOFTMETAL_IN_SPACES(name)                                                              \
    template <class T, class... A>                                                             \
    T softmetal_##name(const volatile __attribute__((address_space(1))) _atomic<T> *, A...);   \
    template <class T, class... A>                                                             \
    T softmetal_##name(const volatile __attribute__((address_space(3))) _atomic<T> *, A...)    \
        __attribute__((diagnose_if(                                                            \
            __is_same(T, float) || __is_same(T, ulong),                                        \
            "Metal has atomic_float and atomic_ulong in device memory, and not in "            \
            "threadgroup memory: change an atomic_uint there in a loop of "                    \
            "atomic_compare_exchange_weak_explicit, with as_type<float>",                      \
            "error")));                                                                        \
    template <class T, class... A> T softmetal_##name(const volatile _atomic<T> *, A...)       \
        __attribute__((diagnose_if(true,                                                       \
                                   "Metal has atomic operations on device and threadgroup "    \
                                   "memory, and not on thread memory: take a variable that "   \
                                   "is not atomic, as no other thread can change it",          \
                                   "error")));
SOFTMETAL_IN_SPACES(atomic_store_explicit)
SOFTMETAL_IN_SPACES(atomic_load_explicit)
SOFTMETAL_IN_SPACES(atomic_exchange_explicit)
SOFTMETAL_IN_SPACES(atomic_compare_exchange_weak_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_add_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_sub_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_and_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_or_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_xor_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_min_explicit)
SOFTMETAL_IN_SPACES(atomic_fetch_max_explicit)
SOFTMETAL_IN_SPACES(atomic_min_explicit)
SOFTMETAL_IN_SPACES(atomic_max_explicit)
#undef SOFTMETAL_IN_SPACES
} // namespace metal

#endif /* SOFTMETAL_ATOMICS_H */
