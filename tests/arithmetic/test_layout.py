"""layout.h in C: random layouts through every function, under the sanitizers; see layout_laws.c."""

import law_programs
import pytest

PARTS = [f"arithmetic/{name}.c" for name in ("layout", "layout_views", "layout_repack")]

pytestmark = pytest.mark.needs_no_sanitizer


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return law_programs.build(tmp_path_factory.mktemp("layout"), "layout_laws", PARTS)


def test_random_layouts_keep_the_laws(program):
    for seed in range(2):
        law_programs.run(program, seed, 10000)
