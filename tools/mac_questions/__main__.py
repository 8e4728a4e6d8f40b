"""The child of tools/on_a_mac.py: ask one question, and end with the code that says what came of it."""

import sys

from . import asking

if __name__ == "__main__":
    sys.exit(asking.run_question(sys.argv[1]))
