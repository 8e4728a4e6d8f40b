"""What dlpack_conformance was called before it had a name of its own; `python -m` takes this one as well."""

from dlpack_conformance import LIBRARIES, RULES, Absent, Library, Missing, Report, Result, Rule, judge

__all__ = ["LIBRARIES", "RULES", "Absent", "Library", "Missing", "Report", "Result", "Rule", "judge"]

if __name__ == "__main__":
    from dlpack_conformance.__main__ import main
    from dlpack_conformance.command_line import run

    run(main, "python -m metal_dlpack.conformance")
