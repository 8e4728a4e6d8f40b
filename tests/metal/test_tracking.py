"""tracking.h in C: random work against a list of all of it, under the sanitizers; see tracking_laws.c."""

import law_programs
import pytest

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    parts = ["metal/tracking.c", "metal/locks.c"]
    return law_programs.build(tmp_path_factory.mktemp("tracking"), "tracking_laws", parts)


@pytest.mark.parametrize("seed", range(4))
def test_random_work_keeps_the_laws(program, seed):
    law_programs.run(program, seed, 4000)
