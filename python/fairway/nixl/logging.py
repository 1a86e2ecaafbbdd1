"""NIXL's `logging.get_logger`; the level is NIXL_LOG_LEVEL's."""

import logging
import os

_LEVELS = {"TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING,
           "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}


def get_logger(name=None):
    root = logging.getLogger("nixl")
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s NIXL %(levelname)-7s %(filename)s:%(lineno)d %(message)s"))
        root.addHandler(handler)
        root.setLevel(_LEVELS.get(os.environ.get("NIXL_LOG_LEVEL", "INFO").upper(), logging.INFO))
        root.propagate = False
    return root if name in (None, "nixl") else root.getChild(name)
