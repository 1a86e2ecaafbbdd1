"""Each deliberate bug of tests/mutation must still fit the code: its text stands exactly once in its file."""

import importlib.util
import sys

import tree

LIST = "tests/mutation/mutants.py"


def check(root):
    sys.path.insert(0, str((root / LIST).parent))  # the list has parts beside it
    spec = importlib.util.spec_from_file_location("mutation_mutants", root / LIST)
    listed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(listed)
    for mutant in listed.MUTANTS:
        path = root / mutant.file
        times = path.read_text().count(mutant.old) if path.exists() else 0
        if times != 1:
            yield f"{LIST}: \"{mutant.name}\": its text stands {times} times in {mutant.file}"


if __name__ == "__main__":
    tree.main(check)
