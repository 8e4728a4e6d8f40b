"""Run a notebook's code cells, as a notebook would: python notebook_child.py NOTEBOOK; exits with 1 at the first error."""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in json.loads(Path(sys.argv[1]).read_text())["cells"]:
    if cell["cell_type"] == "code" and not shell.run_cell("".join(cell["source"])).success:
        sys.exit(1)
