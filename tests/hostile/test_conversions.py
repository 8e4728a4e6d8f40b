"""Arguments whose conversion takes away what the call is about, at every door; and another thread that does.

How they are made stands in hostile/conversions.py, which runs in a child: a freed record is filled with rubbish there, so
that who has only borrowed it dies.  tests/house/test_holding.py reads the sources for the same.
"""

import pytest
from children import run_child
from machine import tries

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels]

#: What is freed is filled, and nothing is kept for the next allocation.
RUBBISH = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "SOFTMETAL_VALIDATION": "1"}


def counts(part, *arguments):
    """(tried, struck) of a part in which nothing went wrong."""
    what = ["-X", "faulthandler", "-m", "hostile.conversions", part]
    child = run_child(what, *arguments, timeout=600, **RUBBISH)
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"died ({child.returncode}) at: {lines[-1:]}\n{child.stderr[-4000:]}"
    done, *numbers = lines[-1].split()
    assert done == "DONE", child.stderr
    return tuple(map(int, numbers))


def test_no_conversion_of_an_argument_takes_away_what_a_call_still_uses():
    tried, struck = counts("doors", 0, 5 // tries(5))
    assert tried > tries(15_000)
    assert struck > tries(110), "most parameters are converted by code of their own"


def test_no_other_thread_closes_a_buffer_that_a_call_still_uses():
    tried, calls = counts("threads")
    assert calls >= 20
    assert tried == 4 * calls
