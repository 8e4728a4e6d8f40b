/* softmetal_simdgroup_matrix.h: 8 by 8 matrices that the lanes of a SIMD-group hold together.
 *
 * Owns:    nothing.
 * Calls:   the run time.
 * Threads: a multiplication waits for all lanes.
 *
 * A lane holds two neighbours of a row, as Apple's GPUs lay them out:
 *
 *   row = (lane / 16) * 4 + (lane / 2) % 4        lane  0: (0,0) (0,1)    lane  8: (0,4) (0,5)
 *   column = (lane / 8) % 2 * 4 + (lane % 2) * 2  lane  2: (1,0) (1,1)    lane 16: (4,0) (4,1)
 */
#ifndef SOFTMETAL_SIMDGROUP_MATRIX_H
#define SOFTMETAL_SIMDGROUP_MATRIX_H

#include "softmetal_simdgroups.h"

namespace softmetal {
struct matrix_place {
    uint row, column;
    SOFTMETAL_INLINE static matrix_place of(uint lane) {
        return {lane / 16 * 4 + lane / 2 % 4, lane / 8 % 2 * 4 + lane % 2 * 2};
    }
};
SOFTMETAL_INLINE uint lane_with(uint row, uint column) {
    return row / 4 * 16 + column / 4 * 8 + row % 4 * 2 + column / 2 % 2;
}
} // namespace softmetal

namespace metal {
template <class T, int Columns = 8, int Rows = 8> struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "a SIMD-group holds matrices of 8 by 8");
    static_assert(
        __is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat),
        "Metal has matrices of a SIMD-group of float, half and bfloat: use one of these");
    typedef vec<T, 2> storage_type;

    simdgroup_matrix() = default;
    /* The diagonal. */
    SOFTMETAL_INLINE explicit simdgroup_matrix(T diagonal) {
        softmetal::matrix_place at = softmetal::matrix_place::of(softmetal::this_lane());
        elements.x = at.row == at.column ? diagonal : T(0);
        elements.y = at.row == at.column + 1 ? diagonal : T(0);
    }
    SOFTMETAL_INLINE storage_type &thread_elements() { return elements; }
    SOFTMETAL_INLINE const storage_type &thread_elements() const { return elements; }

  private:
    storage_type elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns = 8, int Rows = 8, class S>
SOFTMETAL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(S value) {
    simdgroup_matrix<T, Columns, Rows> made;
    made.thread_elements() = vec<T, 2>(T(value));
    return made;
}

/* Where the lane's k-th element lies; the origin counts columns and rows of the memory. */
#define SOFTMETAL_ELEMENT(k)                                                                   \
    (origin.y * elements_per_row + origin.x +                                                  \
     (is_transposed ? (at.column + k) * elements_per_row + at.row                              \
                    : at.row * elements_per_row + at.column + k))
template <class T, class S>
SOFTMETAL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8> &made, const S *from,
                                     ulong elements_per_row = 8, ulong2 origin = 0,
                                     bool is_transposed = false) {
    softmetal::matrix_place at = softmetal::matrix_place::of(softmetal::this_lane());
    made.thread_elements().x = T(from[SOFTMETAL_ELEMENT(0)]);
    made.thread_elements().y = T(from[SOFTMETAL_ELEMENT(1)]);
}
template <class T, class S>
SOFTMETAL_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8> &given, S *to,
                                      ulong elements_per_row = 8, ulong2 origin = 0,
                                      bool is_transposed = false) {
    softmetal::matrix_place at = softmetal::matrix_place::of(softmetal::this_lane());
    to[SOFTMETAL_ELEMENT(0)] = S(given.thread_elements().x);
    to[SOFTMETAL_ELEMENT(1)] = S(given.thread_elements().y);
}
#undef SOFTMETAL_ELEMENT

/* d = a b + c, summed in float from the first column of a to the last. */
template <class D, class A, class B, class C>
SOFTMETAL_CONVERGENT void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d,
                                                        const simdgroup_matrix<A, 8, 8> &a,
                                                        const simdgroup_matrix<B, 8, 8> &b,
                                                        const simdgroup_matrix<C, 8, 8> &c) {
    struct both {
        vec<A, 2> a;
        vec<B, 2> b;
    };
    auto all =
        softmetal::gather(both{a.thread_elements(), b.thread_elements()}, SOFT_ALL_LANES);
    softmetal::matrix_place at = softmetal::matrix_place::of(softmetal::this_lane());
    float2 sum = float2(c.thread_elements());
    for (uint k = 0; k < 8; k += 2) {
        float2 of_a = float2(all.from(softmetal::lane_with(at.row, k)).a);
        float2 upper = float2(all.from(softmetal::lane_with(k, at.column)).b);
        float2 lower = float2(all.from(softmetal::lane_with(k + 1, at.column)).b);
        sum += of_a.x * upper;
        sum += of_a.y * lower;
    }
    d.thread_elements() = vec<D, 2>(sum);
}
template <class D, class A, class B>
SOFTMETAL_CONVERGENT void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d,
                                             const simdgroup_matrix<A, 8, 8> &a,
                                             const simdgroup_matrix<B, 8, 8> &b) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(0));
}
template <class T> SOFTMETAL_CONVERGENT simdgroup_matrix<T, 8, 8>
operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
    simdgroup_matrix<T, 8, 8> product;
    simdgroup_multiply(product, a, b);
    return product;
}
} // namespace metal

#endif /* SOFTMETAL_SIMDGROUP_MATRIX_H */
