"""What a source holds beside code, for patterns with re.VERBOSE and re.DOTALL; what is not closed goes to the end."""

from __future__ import annotations

COMMENT = r"//(?:\\\r?\n|[^\n])*+ | /\*.*?(?:\*/|\Z)"
#: R"fence(...)fence"
RAW_TEXT = r'R"(?P<fence>[^\s()\\]{0,16})\(.*?(?:\)(?P=fence)"|\Z)'
TEXT = r""""(?:\\.|[^"\\\n])*+" | '(?:\\.|[^'\\\n])*+'"""
