"""Kernels of MLX, llama.cpp and torch: a few of each kind in each run, all of them where there is time."""

import pytest

#: Of each file: an operation on items, rows, a reduction in a threadgroup, a product of matrices, other types.
QUICK = {
    "test_real_kernels_mlx": {
        "test_binary_operations",
        "test_a_unary_operation_on_a_view",
        "test_softmax_of_a_row",
        "test_scans_along_rows",
        "test_a_product_of_matrices[half-float16-70-45-50]",
        "test_quantised_weights",
        "test_attention_of_a_query[True]",
    },
    "test_real_kernels_ggml": {
        "test_arithmetic_with_rows_repeated[6-0-add]",
        "test_rope[neox]",
        "test_softmax_with_a_mask",
        "test_sums",
        "test_argsort_and_argmax",
        "test_rows_of_quantised_numbers[Q4_0]",
        "test_a_product_with_a_quantised_matrix",
    },
    "test_real_kernels_torch": {
        "test_special_functions[erf]",
        "test_zeta_and_polygamma",
        "test_random_numbers_are_philox",
        "test_reductions_of_a_threadgroup",
        "test_sums_of_64_bits_in_a_simd_group",
    },
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in QUICK and item.name not in QUICK[item.path.stem]:
            item.add_marker(pytest.mark.long)
