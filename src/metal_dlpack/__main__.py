"""python -m metal_dlpack: the doctor."""

from __future__ import annotations

import argparse
import json
import sys

from .doctor import examine, report

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m metal_dlpack",
        description="What this machine can share: devices, frameworks, and which pairs share "
        "memory, found by sharing. Exits with 1 if a pair that should share does not.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    options = parser.parse_args(arguments)
    if not options.json:
        return 0 if report(sys.stdout) else 1
    facts = examine()
    print(json.dumps(facts, indent=2))
    return 0 if facts["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
