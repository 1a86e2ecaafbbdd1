"""NIXL's Python API on Fairway: `import fairway.nixl as nixl`, or programs as they are:

    python -m fairway.nixl run script.py [arguments]      # `import nixl` in it is served from here
    FAIRWAY_AS_NIXL=1 ... and `import fairway.nixl` first # the same, where the program imports this itself

Checked against NIXL 1.4. docs/nixl.md says what differs: what is safe here where NIXL leaves it open, and what is absent.
"""

import os
import sys

from . import _api, _bindings, _utils, logging
from ._api import *  # noqa: F403
from ._api import DEFAULT_COMM_PORT, nixl_agent, nixl_agent_config  # noqa: F401

_NAMES = ("_api", "_bindings", "_utils", "logging")


def serve_as_nixl():
    """From now on `import nixl`, `nixl._api` and so on give these modules. Refused when another nixl is imported."""
    found = sys.modules.get("nixl")
    if found is not None and found is not sys.modules[__name__]:
        raise ImportError("another nixl is imported already: call serve_as_nixl() before anything imports it")
    sys.modules["nixl"] = sys.modules[__name__]
    for name in _NAMES:
        sys.modules[f"nixl.{name}"] = sys.modules[f"{__name__}.{name}"]


if os.environ.get("FAIRWAY_AS_NIXL") == "1":
    serve_as_nixl()
