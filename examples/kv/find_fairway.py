"""Finds the Python module: what is installed or on PYTHONPATH, else the newest that was built in this tree."""

import importlib
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def built():
    """Folders of this tree that hold a built module, the newest first."""
    return [found.parent.parent for found in sorted(ROOT.glob("build/*/python/fairway/_fairway*.so"), key=lambda found: -found.stat().st_mtime)]


def find():
    """The reason, in a sentence, when there is none that this Python can import. Processes that are started later find it, too."""
    why = None
    for folder in (None, *built()):
        if folder is not None:
            sys.path.insert(0, str(folder))
        try:
            importlib.import_module("fairway")
        except ImportError as error:
            why = why or error
            for name in [name for name in sys.modules if name.partition(".")[0] == "fairway"]:
                del sys.modules[name]
            if folder is not None:
                sys.path.remove(str(folder))
            continue
        if folder is not None:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        return None
    has = f"those built in {ROOT / 'build'} are for another Python" if built() else f"none was built in {ROOT / 'build'}"
    return f"{sys.executable} imports no fairway ({why}), and {has}: install it, or build it (cmake --build --preset dev --target fairway_python)"
