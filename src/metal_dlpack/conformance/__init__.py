"""A judge of DLPack: the rules of the standard, tried against any library's own arrays.

    python -m metal_dlpack.conformance --producer numpy --consumer torch

>>> from metal_dlpack import conformance
>>> report = conformance.judge("producer", "numpy", ["items", "capsule-name"])
>>> report.passes
True

docs/conformance.md shows how to judge a library of your own, also under pytest.
"""

from __future__ import annotations

from .judging import RULES, Missing, Report, Result, judge
from .libraries import LIBRARIES, Library
from .rules import Absent, Rule

__all__ = ["LIBRARIES", "RULES", "Absent", "Library", "Missing", "Report", "Result", "Rule", "judge"]
