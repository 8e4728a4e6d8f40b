"""tracking.h in C: random lives of a few buffers against a plain list of pieces of work; see tracking_laws.c.

It compiles with tracking.c, the timeline and the locks alone: the streams are the program's own.
"""

import law_programs
import pytest


@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_softmetal
def test_work_in_flight_is_told_and_a_failure_to_whom_it_concerns(tmp_path):
    program = law_programs.build(tmp_path, "tracking_laws", ["metal/tracking.c", "metal/timeline.c", "metal/locks.c"])
    for seed in range(3):
        law_programs.run(program, seed, 100_000)
