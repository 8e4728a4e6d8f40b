/* softmetal_matrices.h: matrix<T, columns, rows>, float2x2 to half4x4.
 *
 * Owns:    nothing.
 * Calls:   nothing.
 * Threads: a matrix is a value.
 */
#ifndef SOFTMETAL_MATRICES_H
#define SOFTMETAL_MATRICES_H

#include "softmetal_vectors.h"

namespace metal {
template <class T, int Columns, int Rows> struct matrix {
    typedef vec<T, Rows> column;
    column columns[Columns];

    matrix() = default;
    /* The diagonal. */
    template <class S, class = softmetal::if_scalar<S>>
    SOFTMETAL_INLINE explicit constexpr matrix(S s) : columns{} {
        for (int i = 0; i < Columns && i < Rows; i++)
            columns[i][size_t(i)] = T(s);
    }
    template <class S, class = enable_if_t<!__is_same(S, T)>>
    SOFTMETAL_INLINE explicit constexpr matrix(const matrix<S, Columns, Rows> &o) : columns{} {
        for (int i = 0; i < Columns; i++)
            columns[i] = column(o.columns[i]);
    }
    /* Its columns, or its elements one column after the other. */
    template <class... A,
              class = enable_if_t<sizeof...(A) == Columns || sizeof...(A) == Columns * Rows>>
    SOFTMETAL_INLINE constexpr matrix(A... a) : columns{} {
        if constexpr (sizeof...(A) == Columns) {
            const column given[] = {column(a)...};
            for (int i = 0; i < Columns; i++)
                columns[i] = given[i];
        } else {
            const T given[] = {T(a)...};
            for (int i = 0; i < Columns * Rows; i++)
                columns[i / Rows][size_t(i % Rows)] = given[i];
        }
    }
    SOFTMETAL_INLINE constexpr column &operator[](size_t i) { return columns[i]; }
    SOFTMETAL_INLINE constexpr const column &operator[](size_t i) const { return columns[i]; }

    SOFTMETAL_INLINE constexpr matrix &operator+=(const matrix &b) {
        for (int i = 0; i < Columns; i++)
            columns[i] += b.columns[i];
        return *this;
    }
    SOFTMETAL_INLINE constexpr matrix &operator-=(const matrix &b) { return *this += -b; }
    SOFTMETAL_INLINE constexpr matrix &operator*=(T s) {
        for (int i = 0; i < Columns; i++)
            columns[i] *= s;
        return *this;
    }
    SOFTMETAL_INLINE constexpr matrix &operator*=(const matrix<T, Columns, Columns> &b) {
        return *this = *this * b;
    }
    friend SOFTMETAL_INLINE constexpr matrix operator+(matrix a, const matrix &b) {
        return a += b;
    }
    friend SOFTMETAL_INLINE constexpr matrix operator-(matrix a, const matrix &b) {
        return a -= b;
    }
    friend SOFTMETAL_INLINE constexpr matrix operator-(matrix a) { return a *= T(-1); }
    friend SOFTMETAL_INLINE constexpr matrix operator*(matrix a, T s) { return a *= s; }
    friend SOFTMETAL_INLINE constexpr matrix operator*(T s, matrix a) { return a *= s; }
    friend SOFTMETAL_INLINE constexpr bool operator==(const matrix &a, const matrix &b) {
        for (int i = 0; i < Columns; i++)
            for (int j = 0; j < Rows; j++)
                if (a.columns[i][size_t(j)] != b.columns[i][size_t(j)]) return false;
        return true;
    }
    friend SOFTMETAL_INLINE constexpr bool operator!=(const matrix &a, const matrix &b) {
        return !(a == b);
    }
    /* A column vector on the right, a row vector on the left. */
    friend SOFTMETAL_INLINE constexpr column operator*(const matrix &m, vec<T, Columns> v) {
        column sum = m.columns[0] * v[0];
        for (int i = 1; i < Columns; i++)
            sum += m.columns[i] * v[size_t(i)];
        return sum;
    }
    friend SOFTMETAL_INLINE constexpr vec<T, Columns> operator*(column v, const matrix &m) {
        vec<T, Columns> out = T(0);
        for (int i = 0; i < Columns; i++)
            for (int j = 0; j < Rows; j++)
                out[size_t(i)] += v[size_t(j)] * m.columns[i][size_t(j)];
        return out;
    }
};

template <class T, int Inner, int Rows, int Columns>
SOFTMETAL_INLINE constexpr matrix<T, Columns, Rows>
operator*(const matrix<T, Inner, Rows> &a, const matrix<T, Columns, Inner> &b) {
    matrix<T, Columns, Rows> out;
    for (int i = 0; i < Columns; i++)
        out[size_t(i)] = a * b[size_t(i)];
    return out;
}

template <class T, int Columns, int Rows> SOFTMETAL_INLINE constexpr matrix<T, Rows, Columns>
transpose(const matrix<T, Columns, Rows> &m) {
    matrix<T, Rows, Columns> out;
    for (size_t i = 0; i < Columns; i++)
        for (size_t j = 0; j < Rows; j++)
            out[j][i] = m[i][j];
    return out;
}

template <class T> SOFTMETAL_INLINE constexpr T determinant(const matrix<T, 2, 2> &m) {
    return m[0].x * m[1].y - m[0].y * m[1].x;
}
template <class T> SOFTMETAL_INLINE constexpr T determinant(const matrix<T, 3, 3> &m) {
    return m[0].x * (m[1].y * m[2].z - m[1].z * m[2].y) -
           m[1].x * (m[0].y * m[2].z - m[0].z * m[2].y) +
           m[2].x * (m[0].y * m[1].z - m[0].z * m[1].y);
}
template <class T> SOFTMETAL_INLINE constexpr T determinant(const matrix<T, 4, 4> &m) {
    T sum = T(0);
    for (size_t i = 0; i < 4; i++) {
        matrix<T, 3, 3> minor;
        for (size_t j = 0; j < 3; j++)
            minor[j] = m[j < i ? j : j + 1].get_yzw();
        sum += (i % 2 ? T(-1) : T(1)) * m[i].x * determinant(minor);
    }
    return sum;
}
} // namespace metal

#define SOFTMETAL_NAME_MATRIX(T, C, R)                                                         \
    typedef metal::matrix<T, C, R> T##C##x##R;                                                 \
    typedef T##C##x##R simd_##T##C##x##R, matrix_##T##C##x##R;                                 \
    namespace metal {                                                                          \
    using ::T##C##x##R;                                                                        \
    }                                                                                          \
    namespace simd {                                                                           \
    using ::T##C##x##R;                                                                        \
    }
#define SOFTMETAL_NAME_MATRICES(T, C)                                                          \
    SOFTMETAL_NAME_MATRIX(T, C, 2)                                                             \
    SOFTMETAL_NAME_MATRIX(T, C, 3)                                                             \
    SOFTMETAL_NAME_MATRIX(T, C, 4)
SOFTMETAL_NAME_MATRICES(float, 2)
SOFTMETAL_NAME_MATRICES(float, 3)
SOFTMETAL_NAME_MATRICES(float, 4)
SOFTMETAL_NAME_MATRICES(half, 2)
SOFTMETAL_NAME_MATRICES(half, 3)
SOFTMETAL_NAME_MATRICES(half, 4)
#undef SOFTMETAL_NAME_MATRICES
#undef SOFTMETAL_NAME_MATRIX

#endif /* SOFTMETAL_MATRICES_H */
