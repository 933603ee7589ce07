"""Lets the crash campaign switch off the embedder of a running server. Python imports this module when it starts.

The built-in embedder runs inside the server, so nothing outside can stop it. While the file exists that
RUNEKEEP_FAILPOINT_EMBEDDER_AWAY names, each run of the model fails and adds a line to that file.
"""

import importlib.abc
import importlib.util
import os
import sys

_MODULE = "runekeep_storage.embedders.minilm"
_AWAY = os.environ.get("RUNEKEEP_FAILPOINT_EMBEDDER_AWAY", "")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the embedder's module normally, and puts the switch in front of its model."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            load(module)
            run = module.MiniLm.run

            def switched(model, texts):  # type: ignore[no-untyped-def]
                if os.path.exists(_AWAY):
                    with open(_AWAY, "a") as file:
                        file.write("refused\n")
                    raise RuntimeError("the embedder was taken away by a test")
                return run(model, texts)

            module.MiniLm.run = switched

        spec.loader.exec_module = exec_module
        return spec


if _AWAY:
    sys.meta_path.insert(0, _Finder())
