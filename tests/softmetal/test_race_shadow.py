"""race_shadow.h in C: random uses of a block against a plain list for each byte; see race_shadow_laws.c.

It compiles with race_shadow.c alone: the shadow knows no buffers, no queues and no Metal.
"""

import law_programs
import pytest


@pytest.mark.needs_no_sanitizer
def test_random_uses_leave_what_a_plain_list_leaves(tmp_path):
    program = law_programs.build(tmp_path, "race_shadow_laws", ["softmetal/gpu/race_shadow.c"])
    for seed in range(3):
        law_programs.run(program, seed, 1000)
