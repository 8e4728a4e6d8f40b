"""What is wrong with a file."""

__all__ = ["FileFormatError"]


class FileFormatError(ValueError):
    """A file is not what its format demands: truncated, overlapping, lying, or of another kind.

    The sentence names the path, the tensor where there is one, and the numbers that do not agree.
    """
