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
    static_assert(is_integral_v<T> ? __is_same(T, bool) || sizeof(T) >= 4 : __is_same(T, float),
                  "Metal has atomics of int, uint, bool, float and ulong: use one of these");
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

namespace metal {
using ::atomic_bool, ::atomic_float, ::atomic_int, ::atomic_long, ::atomic_uint, ::atomic_ulong;

template <class T, class U>
SOFTMETAL_INLINE void atomic_store_explicit(volatile _atomic<T> *object, U desired,
                                            memory_order order,
                                            thread_scope = thread_scope_device) {
    T wanted = T(desired);
    __atomic_store(&object->value, &wanted, order);
}
template <class T> SOFTMETAL_INLINE T atomic_load_explicit(const volatile _atomic<T> *object,
                                                           memory_order order,
                                                           thread_scope = thread_scope_device) {
    T found;
    __atomic_load(&object->value, &found, order);
    return found;
}
template <class T, class U>
SOFTMETAL_INLINE T atomic_exchange_explicit(volatile _atomic<T> *object, U desired,
                                            memory_order order,
                                            thread_scope = thread_scope_device) {
    T wanted = T(desired), found;
    __atomic_exchange(&object->value, &wanted, &found, order);
    return found;
}
template <class T, class U> SOFTMETAL_INLINE bool
atomic_compare_exchange_weak_explicit(volatile _atomic<T> *object, T *expected, U desired,
                                      memory_order success, memory_order failure,
                                      thread_scope = thread_scope_device) {
    T wanted = T(desired);
    return __atomic_compare_exchange(&object->value, expected, &wanted, true, success, failure);
}

/* An integer's is one instruction; a float's retries until nobody came between. */
#define SOFTMETAL_ATOMIC(name, builtin, combined)                                              \
    template <class T, class U>                                                                \
    SOFTMETAL_INLINE T atomic_fetch_##name##_explicit(volatile _atomic<T> *object, U operand,  \
                                                      memory_order order,                      \
                                                      thread_scope = thread_scope_device) {    \
        T b = T(operand);                                                                      \
        if constexpr (is_integral_v<T> && !__is_same(T, bool)) {                               \
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
SOFTMETAL_ATOMIC(add, __atomic_fetch_add, a + b)
SOFTMETAL_ATOMIC(sub, __atomic_fetch_sub, a - b)
SOFTMETAL_ATOMIC(and, __atomic_fetch_and, bool(a) & bool(b))
SOFTMETAL_ATOMIC(or, __atomic_fetch_or, bool(a) | bool(b))
SOFTMETAL_ATOMIC(xor, __atomic_fetch_xor, bool(a) ^ bool(b))
SOFTMETAL_ATOMIC(min, __atomic_fetch_min, b < a ? b : a)
SOFTMETAL_ATOMIC(max, __atomic_fetch_max, a < b ? b : a)
#undef SOFTMETAL_ATOMIC

/* Of 64 bits, without a result. */
template <class U> SOFTMETAL_INLINE void atomic_min_explicit(volatile atomic_ulong *object,
                                                             U operand, memory_order order) {
    __atomic_fetch_min(&object->value, ulong(operand), order);
}
template <class U> SOFTMETAL_INLINE void atomic_max_explicit(volatile atomic_ulong *object,
                                                             U operand, memory_order order) {
    __atomic_fetch_max(&object->value, ulong(operand), order);
}
} // namespace metal

#endif /* SOFTMETAL_ATOMICS_H */
