"""What the repository's checks share: the files of a tree and how a check reports."""

import os
import pathlib
import re
import sys

BUILT = re.compile(r"^(\.git|\.cache|__pycache__|build.*)$")


def files(root, *suffixes, under=""):
    """Every file below root/under with one of the suffixes (all files without), as paths relative to root, sorted."""
    found = []
    for folder, folders, names in os.walk(root / under):
        folders[:] = [name for name in folders if not BUILT.match(name)]
        found += [(pathlib.Path(folder) / name).relative_to(root) for name in names if name != ".git"]  # a worktree's is a file
    return sorted(path for path in found if not suffixes or path.suffix in suffixes)


def code_lines(text):
    """Yields (line number, line) with comments and the insides of string literals taken out."""
    keep_lines = lambda match: "\n" * match.group().count("\n")
    text = re.sub(r'R"(\w*)\(.*?\)\1"', keep_lines, text, flags=re.DOTALL)
    token = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    text = token.sub(lambda m: '""' if m.group()[0] == '"' else keep_lines(m), text)
    return enumerate(text.split("\n"), 1)


def main(check):
    """Runs check(root) -> problems on the tree given as the only argument; prints them and exits 1 when there are any."""
    problems = list(check(pathlib.Path(sys.argv[1]).resolve()))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
