/* softmetal_names.h: what a library names beside its arithmetic: arrays,
 * logging that says nothing, and Apple's macros.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a type or text.
 */
#ifndef SOFTMETAL_NAMES_H
#define SOFTMETAL_NAMES_H

#include "softmetal_types.h"

#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_INTERNAL inline
#define METAL_CONST __attribute__((const))
#define METAL_PURE __attribute__((pure))
#define METAL_ALWAYS_INLINE inline __attribute__((always_inline))
#define METAL_ASM(...)
#define METAL_CONST_ARG(...)
#define METAL_VALID_CONSTEXPR
#define assert(condition) ((void)0)
#define static_print(...)

namespace metal {
template <class T, size_t N> struct array {
    typedef T value_type;
    T values[N];
    SOFTMETAL_INLINE constexpr T &operator[](size_t i) { return values[i]; }
    SOFTMETAL_INLINE constexpr const T &operator[](size_t i) const { return values[i]; }
    SOFTMETAL_INLINE constexpr T *data() { return values; }
    SOFTMETAL_INLINE constexpr const T *data() const { return values; }
    SOFTMETAL_INLINE constexpr T *begin() { return values; }
    SOFTMETAL_INLINE constexpr const T *begin() const { return values; }
    SOFTMETAL_INLINE constexpr T *end() { return values + N; }
    SOFTMETAL_INLINE constexpr const T *end() const { return values + N; }
    SOFTMETAL_INLINE constexpr T &front() { return values[0]; }
    SOFTMETAL_INLINE constexpr T &back() { return values[N - 1]; }
    SOFTMETAL_INLINE static constexpr size_t size() { return N; }
    SOFTMETAL_INLINE static constexpr bool empty() { return N == 0; }
};
/* Elements that lie elsewhere. */
template <class T> struct array_ref {
    SOFTMETAL_INLINE constexpr array_ref(const T *values, size_t count)
        : values(const_cast<T *>(values)), count(count) {}
    template <size_t N> SOFTMETAL_INLINE constexpr array_ref(array<remove_const_t<T>, N> &whole)
        : values(whole.values), count(N) {}
    template <size_t N>
    SOFTMETAL_INLINE constexpr array_ref(const array<remove_const_t<T>, N> &whole)
        : values(const_cast<T *>(whole.values)), count(N) {}
    SOFTMETAL_INLINE constexpr T &operator[](size_t i) const { return values[i]; }
    SOFTMETAL_INLINE constexpr T *data() const { return values; }
    SOFTMETAL_INLINE constexpr T *begin() const { return values; }
    SOFTMETAL_INLINE constexpr T *end() const { return values + count; }
    SOFTMETAL_INLINE constexpr size_t size() const { return count; }
    SOFTMETAL_INLINE constexpr bool empty() const { return count == 0; }

  private:
    T *values;
    size_t count;
};

enum os_log_type {
    os_log_type_default,
    os_log_type_info,
    os_log_type_debug,
    os_log_type_error
};
struct os_log {
    template <class... A> SOFTMETAL_INLINE constexpr os_log(const A &...) {}
    template <class... A> SOFTMETAL_INLINE void log(const A &...) const {}
    template <class... A> SOFTMETAL_INLINE void log_with_type(const A &...) const {}
    template <class... A> SOFTMETAL_INLINE void log_info(const A &...) const {}
    template <class... A> SOFTMETAL_INLINE void log_debug(const A &...) const {}
    template <class... A> SOFTMETAL_INLINE void log_error(const A &...) const {}
    template <class... A> SOFTMETAL_INLINE void log_fault(const A &...) const {}
};
inline constexpr os_log os_log_default;
} // namespace metal

#endif /* SOFTMETAL_NAMES_H */
