"""What softmetal.counting was called before softmetal had a name of its own."""

from __future__ import annotations

import sys

from softmetal import counting
from softmetal.counting import *  # noqa: F403

sys.modules[__name__] = counting
