"""PyTorch's own test_mps.py on the mps device of softmetal.torch_mps(); see tests/support/pytorchs_suite.py.

    .venv/bin/python -m pytest -n0 -s tests/torch_mps/test_pytorchs_suite.py        # prints the share that passes

The same with build/torch-2.12.1/bin/python, which `tools/versions.py torch==2.12.1` makes, has the torch of the suite's release.

What fails is listed with its cause.  A line of the list that passes is stale, and fails.  Tests that PyTorch expects to
fail on a Mac, and that pass here, are counted apart: the CPU has operators and numbers that MPS lacks.
"""

import collections
import re
from fnmatch import fnmatchcase

import fetched_data
import pytest
import pytorchs_suite

pytestmark = [
    pytest.mark.needs_softmetal,
    pytest.mark.needs_torch,
    pytest.mark.needs_no_sanitizer,
]

#: The suite's own release, and the torch that the other tests have.
LISTED = ("2.12", "2.13")
LEAST_TESTS, LEAST_SHARE = 7400, 0.98

#: {cause: patterns of tests}
FAILS = {
    "refused on a Mac only, or in other words": [
        "TestErrorInputsMPS.test_embedding_bag_out_of_bounds_mps",
        "TestErrorInputsMPS.test_error_inputs_cat_mps",
        "TestErrorInputsMPS.test_index_put_out_of_bounds_mps",
        "TestLargeTensors.test_rand_2b_raises",
        "TestLogical.test_isin_asserts",
        "TestMPS.test_linear_errors",
        "TestNNMPS.test_invalid_conv2d",
    ],
    "half precision is rounded in another place": [
        "TestConsistencyMPS.test_grid_sampler_3d_half_precision_mps_*float16",
        "TestConsistencyMPS.test_output_match_grid_sampler_*_mps_*float16",
    ],
    "let pass on a Mac only: bounds that its kernels do not check": ["TestLogical.test_min_max_bool"],
    "a Mac has memory in larger pieces, which one more buffer does not show": [
        "TestSDPA.test_sdpa_fp32_no_memory_leak"
    ],
    "backward(create_graph=True) of tests before it keeps memory": ["TestMPS.test_mps_allocator_module"],
    "it wants other results each time": ["TestAdvancedIndexing.test_index_put_deterministic"],
    "PyTorch has changed since the suite's release": ["TestFallbackWarning.test_error_on_not_implemented"],  # lcm
    "it starts a Python that has torch as it was built": [
        "TestFallbackWarning.test_warn_on_not_implemented_with_fallback"
    ],
}
#: Tests that pass with one torch, or behind other tests.
MAY_PASS = (
    "TestFallbackWarning.test_error_on_not_implemented",
    "TestMPS.test_mps_allocator_module",
    "TestSDPA.test_sdpa_fp32_no_memory_leak",
)
#: By what torch says.
LACKS_A_TYPE = "the CPU's operator does not take the type, as MPS's does"
SAYS_SO = re.compile(r"not implemented for '\w+'|expected scalar type Half but found Float")

BETTER = "Unexpected success"


def cause_of(test, said=""):
    named = next((cause for cause, tests in FAILS.items() if any(fnmatchcase(test, line) for line in tests)), None)
    return named or (LACKS_A_TYPE if SAYS_SO.search(said) else None)


def test_the_causes_are_named_once():
    lines = [line for lines in FAILS.values() for line in lines]
    assert len(set(lines)) == len(lines) and set(MAY_PASS) < set(lines)
    assert cause_of("TestLogical.test_min_max_bool").startswith("let pass on a Mac only")
    assert cause_of("TestMPS.test_add") is None
    assert cause_of("TestMPS.test_add", "\"add_stub\" not implemented for 'Half'") == LACKS_A_TYPE


@pytest.mark.long
def test_the_suite_of_pytorch(tmp_path, capsys, torch):
    if not torch.__version__.startswith(LISTED):
        pytest.skip(f"the list is of torch {' and '.join(LISTED)}, this is {torch.__version__}")
    outcomes = pytorchs_suite.run(fetched_data.file("pytorch-2.12.1"), tmp_path)
    counts = collections.Counter(outcome for outcome, _ in outcomes.values())
    failed = {test: said for test, (outcome, said) in outcomes.items() if outcome == "failed"}
    better = {test for test, said in failed.items() if BETTER in said}
    causes = collections.Counter(cause_of(test, failed[test]) for test in failed.keys() - better)
    good = counts["passed"] + counts["failed as on a Mac"]
    share = good / (good + len(failed) - len(better))
    with capsys.disabled():
        print(f"\nPyTorch's test_mps.py: {share:.1%} of {good + len(failed) - len(better)} tests pass")
        print(f"{counts['passed']:6} pass, {counts['failed as on a Mac']} fail as on a Mac")
        print(f"{len(better):6} pass that fail on a Mac; {counts['skipped']} are skipped")
        for cause, number in causes.most_common():
            print(f"{number:6} fail: {cause}")
    assert {test: said for test, said in failed.items() if test not in better and cause_of(test, said) is None} == {}
    failing = failed.keys() - better
    lines = [line for lines in FAILS.values() for line in lines if line not in MAY_PASS]
    stale = [line for line in lines if not any(fnmatchcase(test, line) for test in failing)]
    assert stale == []
    assert len(outcomes) >= LEAST_TESTS and share >= LEAST_SHARE
