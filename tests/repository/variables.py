"""`fairway info` knows every variable of the environment that a part of Fairway reads."""

import re

import tree

LIST = "tools/variables.cc"
# Where a name stands by itself between quotes, something looks it up; in a message it stands among other words.
NAMED = re.compile(r"""["'](FAIRWAY_[A-Z0-9_]+)["']""")
FOLDERS = ("src", "plugins", "python/fairway")


def check(root):
    known = set(re.findall(r'\{"(FAIRWAY_[A-Z0-9_]+)"', (root / LIST).read_text()))
    read = {}
    for folder in FOLDERS:
        for path in tree.files(root, ".h", ".cc", ".py", under=folder):
            for name in NAMED.findall((root / path).read_text()):
                read.setdefault(name, path)
    for name in sorted(read.keys() - known):
        yield f"{LIST}: {name} is missing, which {read[name]} reads"
    for name in sorted(known - read.keys()):
        yield f"{LIST}: nothing reads {name}"


if __name__ == "__main__":
    tree.main(check)
