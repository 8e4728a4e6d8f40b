"""What softmetal was called before it had a name of its own; `python -m` takes this one as well."""

from __future__ import annotations

import sys

import softmetal
from softmetal import *  # noqa: F403

if __name__ == "__main__":
    from softmetal.running.program import main

    sys.exit(main(sys.argv[1:]))

sys.modules[__name__] = softmetal
