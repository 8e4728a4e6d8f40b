"""What a kernel's way to machine code can end with: the source is at fault, or the compiler is."""

#: The file that a source is called after, as Metal calls it.
PROGRAM = "program_source"


class SourceError(Exception):
    """The kernel's source does not compile.

    `str(error)` holds the diagnostics as Metal's own compiler prints them: "file:line:column: error: text", the line
    and a caret, one diagnostic after the other.
    """


class CompilerError(RuntimeError):
    """The compiler itself does not work: it crashed, was killed, took too long, or its answer is not understood."""


class Undefined(CompilerError):
    """The linker misses what a source declares and does not define: `symbol`, as C++ spells it."""

    def __init__(self, symbol: str) -> None:
        super().__init__(f"'{symbol}' is not defined.")
        self.symbol = symbol


class CompilerNotFound(CompilerError):
    """No clang was found that can compile kernels; the text says where it was looked for and how to get one."""
