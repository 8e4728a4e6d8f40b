/* softmetal_reflection.h: the MTLDataType of a C++ type.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: everything here is a constant.
 */
#ifndef SOFTMETAL_REFLECTION_H
#define SOFTMETAL_REFLECTION_H

#include "softmetal_atomics.h"
#include "softmetal_matrices.h"
#include "softmetal_vectors.h"

namespace softmetal {
/* The numbers of MTLDataType.  A scalar's vectors follow it. */
enum : soft_u32 { data_type_struct = 1, data_type_array = 2 };

template <soft_u32 number> using data_type_of = metal::integral_constant<soft_u32, number>;

template <class T> struct data_type
    : data_type_of<__is_class(T) || __is_union(T) ? data_type_struct : 0> {};
#define SOFTMETAL_DATA_TYPE(T, number)                                                         \
    template <> struct data_type<T> : data_type_of<number> {};
SOFTMETAL_DATA_TYPE(float, 3)
SOFTMETAL_DATA_TYPE(half, 16)
SOFTMETAL_DATA_TYPE(int, 29)
SOFTMETAL_DATA_TYPE(uint, 33)
SOFTMETAL_DATA_TYPE(short, 37)
SOFTMETAL_DATA_TYPE(ushort, 41)
SOFTMETAL_DATA_TYPE(char, 45)
SOFTMETAL_DATA_TYPE(int8_t, 45)
SOFTMETAL_DATA_TYPE(uchar, 49)
SOFTMETAL_DATA_TYPE(bool, 53)
SOFTMETAL_DATA_TYPE(long, 81)
SOFTMETAL_DATA_TYPE(long long, 81)
SOFTMETAL_DATA_TYPE(ulong, 85)
SOFTMETAL_DATA_TYPE(unsigned long long, 85)
SOFTMETAL_DATA_TYPE(bfloat, 121)
#undef SOFTMETAL_DATA_TYPE
template <class T, int N> struct data_type<vec<T, N>>
    : data_type_of<data_type<T>::value + N - 1> {};
template <class T, int N> struct data_type<packed_vec<T, N>> : data_type<vec<T, N>> {};
template <class T> struct data_type<metal::_atomic<T>> : data_type<T> {};
template <class T, size_t N> struct data_type<T[N]> : data_type_of<data_type_array> {};
/* float2x2 is 7, half2x2 is 20. */
template <class T, int C, int R> struct data_type<metal::matrix<T, C, R>>
    : data_type_of<data_type<T>::value + 4 + 3 * (C - 2) + (R - 2)> {};

template <class> using always_void = void;
/* Of void and what is not complete nothing is known. */
template <class T, class = void> inline constexpr size_t size_of = 0;
template <class T> inline constexpr size_t size_of<T, always_void<int[sizeof(T)]>> = sizeof(T);
template <class T, class = void> inline constexpr size_t alignment_of = 1;
template <class T> inline constexpr size_t alignment_of<T, always_void<int[sizeof(T)]>> =
    alignof(T);
} // namespace softmetal

#endif /* SOFTMETAL_REFLECTION_H */
