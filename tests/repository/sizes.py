"""Files stay small enough to be read whole."""

import tree

NEEDS_REASON = 400  # longer than this, one of the first five lines must hold `size:` and why
MOST = 600
PUBLIC_MOST = 1400  # all headers of include/fairway together
C_MOST = {"fairway.h": 399, "fairway_collectives.h": 260}  # they say the same once more, for C
SOURCES = (".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh")


def check(root):
    for path in tree.files(root, *SOURCES):
        lines = (root / path).read_text().split("\n")
        count = len(lines) - (lines[-1] == "")
        if count > MOST:
            yield f"{path}: {count} lines; over {MOST} a file is split"
        elif count > NEEDS_REASON and not any("size: " in line for line in lines[:5]):
            yield f"{path}: {count} lines; over {NEEDS_REASON} one of its first five lines says `size: <why>`"
    public = sum((root / path).read_text().count("\n") for path in tree.files(root, ".h", under="include/fairway"))
    for name, most in C_MOST.items():
        c_header = root / "include" / name
        if c_header.exists() and (lines := c_header.read_text().count("\n")) > most:
            yield f"include/{name}: {lines} lines; at most {most}"
    if public > PUBLIC_MOST:
        yield f"include/fairway: the public headers have {public} lines together; at most {PUBLIC_MOST}"


if __name__ == "__main__":
    tree.main(check)
