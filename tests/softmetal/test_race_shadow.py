"""race_shadow.h in C: random uses of a block against a plain list for each byte; see race_shadow_laws.c.

It compiles with race_shadow.c alone: the shadow knows no buffers, no queues and no Metal.
"""

import law_programs
import pytest

pytestmark = pytest.mark.needs_no_sanitizer


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return law_programs.build(tmp_path_factory.mktemp("race_shadow"), "race_shadow_laws", ["softmetal/race_shadow.c"])


@pytest.mark.parametrize("seed", range(3))
def test_random_uses_leave_what_a_plain_list_leaves(program, seed):
    law_programs.run(program, seed, 1000)
