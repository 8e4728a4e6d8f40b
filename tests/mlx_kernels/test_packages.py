"""The kernels of mlx-lm, mlx-vlm and mlx-audio, launched as these packages launch them; mlx_calls.py is the table."""

import json
import os

import fetched_data
import pytest
from children import run_child
from places import SUPPORT

mark = pytest.mark
pytestmark = [mark.long, mark.needs_softmetal, mark.needs_kernels, mark.needs_mlx, mark.needs_no_sanitizer]

PACKAGES = ("mlx-lm", "mlx-vlm", "mlx-audio")
#: What the checker finds in them, by the case's beginning: read, and right.
FOUND = {
    "mlx_audio.codec.models.encodec.encodec: lstm_of_several": "outside its memory",
    "mlx_vlm.turboquant: one_more_token": "which no thread of the threadgroup has written",
    "mlx_lm.tuner.losses: gradient_of_": "one thread writes and another reads byte",
    "mlx_lm.tuner.losses: kullback_leibler": "one thread writes and another reads byte",
    "mlx_lm.tuner.losses: jensen_shannon": "one thread writes and another reads byte",
    "mlx_vlm.models.kernels: grid_sample": "reads outside its memory",
}


def run_cases(checked, *words):
    folders = os.pathsep.join(str(fetched_data.folder(name)) for name in PACKAGES)
    script = SUPPORT / "mlx_packages.py"
    settings = {"SOFTMETAL_KERNEL_CHECK": str(checked), "SOFTMETAL_VALIDATION": None}
    done = run_child(script, folders, *words, timeout=3000, **settings)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def unexpected(answer, found):
    """What went wrong and was not found before, and what was found before and went well."""
    names = {
        name: next((words for case, words in found.items() if name.startswith(case)), None) for name in answer["cases"]
    }
    return {
        name: wrong
        for name, wrong in answer["cases"].items()
        if (wrong is None) != (names[name] is None) or (wrong is not None and names[name] not in wrong)
    }


def test_they_are_built_and_launched_and_equal_to_a_reference():
    answer = run_cases(checked=0)
    assert unexpected(answer, {}) == {}
    assert [site for site, launches in answer["sites"].items() if not launches] == []
    assert len(answer["referenced"]) >= 60


def test_the_checker_finds_what_is_wrong_in_them_and_nothing_else():
    assert unexpected(run_cases(checked=1), FOUND) == {}
