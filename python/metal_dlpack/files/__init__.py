"""What open() stands on: the file, its header by format, its bytes as buffers.  Imported when it is first called."""
