"""`python -m tests.recorded [CASE ...]`: plays cases, all unless some are named, and writes down what came of it.

For a case that is new, and for one whose outcome changed for a good reason: look at the difference before it is kept.
"""

import sys
import tempfile
from pathlib import Path

from tests.acceptance.processes import processes
from tests.recorded.replay import cases, play, write

for name in sys.argv[1:] or cases():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, processes(Path(directory)) as fleet:
        write(name, play(fleet, name))
    print(f"{name}: written")
