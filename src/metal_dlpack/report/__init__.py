"""What ran on the software Metal and what was found in it: each kernel, each finding once, at the user's own line.

literals.py    where in the program's source is this text?
"""

from .literals import source_of, with_lines

__all__ = ["source_of", "with_lines"]
