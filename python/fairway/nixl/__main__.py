"""python -m fairway.nixl run script.py [arguments]; -m for a module."""

import runpy
import sys

import fairway.nixl

USAGE = "usage: python -m fairway.nixl run script.py [arguments]\n       python -m fairway.nixl run -m module [arguments]"


def main(arguments):
    if len(arguments) < 2 or arguments[0] != "run" or (arguments[1] == "-m" and len(arguments) < 3):
        print(USAGE, file=sys.stderr)
        return 2
    fairway.nixl.serve_as_nixl()
    if arguments[1] == "-m":
        sys.argv = arguments[2:]
        runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments[1:]
        sys.path[0] = arguments[1].rpartition("/")[0] or "."
        runpy.run_path(arguments[1], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
