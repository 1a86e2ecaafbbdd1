"""python -m fairway.kv bench [options]"""

import sys

USAGE = "usage: fairway kv bench [options]    (or python -m fairway.kv bench)\n\n  bench  moves KV caches of real models between two processes; --help lists its options"


def main(arguments):
    if arguments[:1] in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if arguments[:1] != ["bench"]:
        wrong = f"there is no command {arguments[0]!r} here" if arguments else "what is to be done is not named"
        print(f"fairway kv: {wrong}: it is `fairway kv bench`; try 'fairway kv bench --help'", file=sys.stderr)
        return 2
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        print(f"fairway kv bench: {sys.executable} has no NumPy: apt-get install python3-numpy, or pip install numpy", file=sys.stderr)
        return 1
    from .bench import main as bench

    try:
        return bench(arguments[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
