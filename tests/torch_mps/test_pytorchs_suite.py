"""PyTorch's own test_mps.py on the mps device of softmetal.torch_mps(); see tests/support/pytorchs_suite.py.

    .venv/bin/python -m pytest -n0 -s tests/torch_mps/test_pytorchs_suite.py        # prints the share that passes

What fails is listed with its cause.  A line of the list that passes is stale, and fails.  Tests that PyTorch expects to
fail on a Mac, and that pass here, are counted apart: the CPU has operators and numbers that MPS lacks.
"""

import collections
from fnmatch import fnmatchcase

import fetched_data
import pytest
import pytorchs_suite

pytestmark = [
    pytest.mark.needs_softmetal,
    pytest.mark.needs_torch,
    pytest.mark.needs_no_sanitizer,
]

LISTED = "2.13"
LEAST_TESTS, LEAST_SHARE = 6800, 0.98

#: {cause: patterns of tests}
FAILS = {
    "PyTorch has changed since the suite's release": [
        "TestMPS.test_batch_norm",  # eps=0 is refused
        "TestFallbackWarning.test_error_on_not_implemented",  # lcm is implemented
        "TestMetalLibrary.test_metal_error_checking",  # compile_shader raises SyntaxError
    ],
    "it starts a Python that has torch as it was built": [
        "TestFallbackWarning.test_warn_on_not_implemented_with_fallback"
    ],
    "refused on a Mac only, or in other words": [
        "TestErrorInputsMPS.test_error_inputs_cat_mps",
        "TestLogical.test_isin_asserts",
        "TestMPS.test_linear_errors",
        "TestMPS.test_normal",
        "TestNNMPS.test_invalid_conv2d",
    ],
    "let pass on a Mac only: bounds that its kernels do not check": [
        "TestLogical.test_min_max_bool",
        "TestSDPA.test_sdpa_mask_fp16_L6_S17_NH23_HS121",
    ],
    "backward(create_graph=True) of tests before it keeps memory": ["TestMPS.test_mps_allocator_module"],
    "it wants other results each time": ["TestAdvancedIndexing.test_index_put_deterministic"],
    "half precision is rounded in another place": [
        "TestConsistencyCPU.test_output_*match_nn_functional_linear_cross_entropy_chunked_*16",
    ],
}

BETTER = "Unexpected success"


def cause_of(test):
    return next((cause for cause, tests in FAILS.items() if any(fnmatchcase(test, line) for line in tests)), None)


def test_the_causes_are_named_once():
    lines = [line for lines in FAILS.values() for line in lines]
    assert len(set(lines)) == len(lines)
    assert cause_of("TestMetalLibrary.test_metal_error_checking").startswith("PyTorch has changed")
    assert cause_of("TestMPS.test_add") is None


@pytest.mark.long
def test_the_suite_of_pytorch(tmp_path, capsys, torch):
    if not torch.__version__.startswith(LISTED):
        pytest.skip(f"the list is of torch {LISTED}, this is {torch.__version__}")
    outcomes = pytorchs_suite.run(fetched_data.file("pytorch-2.6.0"), tmp_path)
    counts = collections.Counter(outcome for outcome, _ in outcomes.values())
    failed = {test: said for test, (outcome, said) in outcomes.items() if outcome == "failed"}
    better = {test for test, said in failed.items() if BETTER in said}
    causes = collections.Counter(cause_of(test) for test in failed.keys() - better)
    good = counts["passed"] + counts["failed as on a Mac"]
    share = good / (good + len(failed) - len(better))
    with capsys.disabled():
        print(f"\nPyTorch's test_mps.py: {share:.1%} of {good + len(failed) - len(better)} tests pass")
        print(f"{counts['passed']:6} pass, {counts['failed as on a Mac']} fail as on a Mac")
        print(f"{len(better):6} pass that fail on a Mac; {counts['skipped']} are skipped")
        for cause, number in causes.most_common():
            print(f"{number:6} fail: {cause}")
    assert {test: said for test, said in failed.items() if test not in better and cause_of(test) is None} == {}
    failing = failed.keys() - better
    stale = [line for lines in FAILS.values() for line in lines if not any(fnmatchcase(test, line) for test in failing)]
    assert stale == []
    assert len(outcomes) >= LEAST_TESTS and share >= LEAST_SHARE
