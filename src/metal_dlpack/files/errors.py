"""What is wrong with a file."""

__all__ = ["FileFormatError"]


class FileFormatError(ValueError):
    """A file is not what its format requires: truncated, overlapping, wrong about itself, or of another format.

    The message names the path, the tensor where there is one, and the numbers that do not agree.
    """
