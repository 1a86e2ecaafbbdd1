"""What the documents point at exists: links to files and headings, and in README.md the commands and paths too. Its translations have
its commands, links and figures, and each page of the tutorial has one in Chinese with the same code. What the plugin for NCCL reads of the environment is in its table, and the table has nothing else. The
newest release of CHANGELOG.md is the version that is built; CONTRIBUTING.md and `make help` name each label of tests; so is the version of the recipe for Spack, whose switches CMake has. The tutorial shows of its programs what they have."""

import re

import tree

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TUTORIAL_LINES = 80
SHELL = ("", "sh", "bash", "console")


def anchors(text):
    """The fragments that a page's headings can be linked by."""
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}


def broken_links(root, path, text):
    for match in LINK.finditer(FENCE.sub("", text)):
        link = match.group(1) or match.group(2)
        if re.match(r"\w+:", link):
            continue
        file, _, fragment = link.partition("#")
        target = root / path.parent / file if file else root / path
        if not target.exists():
            yield f"{path}: links to {link}, which does not exist"
        elif fragment and target.suffix == ".md" and fragment not in anchors(target.read_text()):
            yield f"{path}: links to {link}, which has no such heading"


def broken_commands(root, path, text):
    """Commands in README's code: `make VERB` needs that verb, and a program of the tree must be in it."""
    makefile = root / "Makefile"
    verbs = set(re.findall(r"^([a-z]+):", makefile.read_text(), re.MULTILINE)) if makefile.exists() else set()
    lines = [line for language, block in FENCE.findall(text) if language in SHELL for line in block.split("\n")]
    for line in lines + re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        words = line.removeprefix("$ ").removeprefix("python3 ").split()
        verb = words[1] if words[:1] == ["make"] and len(words) > 1 else ""
        if re.fullmatch(r"[a-z]+", verb) and verb not in verbs:
            yield f"{path}: `make {verb}`: the Makefile has no such verb"
        if words and re.match(r"(\./)?(scripts|tools|tests|examples|bench)/", words[0]) and not (root / words[0]).exists():
            yield f"{path}: `{words[0]}` does not exist"


def untranslated(text):
    """What a translation leaves as it is: code without its comments, links but those to other languages, figures."""
    yield from (re.sub(r"\s*(#|//) .*", "", block) for _, block in FENCE.findall(text))
    prose = FENCE.sub("", text)
    yield from re.findall(r"`[^`]+`", prose)
    yield from (link.replace("/zh-CN/", "/") for match in LINK.finditer(prose) if not re.match(r"README[.\w-]*\.md$", link := match.group(1) or match.group(2)))
    yield from re.findall(r"\d+\.\d+|\d+ (?:[MG]b/s|[MG]B/s|us|[KMG]iB)", prose)


def stale_translations(root, path, text):
    for other in sorted((root / path.parent).glob("README.*.md")):
        theirs = other.read_text()
        for missing in sorted(set(untranslated(text)) - set(untranslated(theirs))):
            yield f"{other.relative_to(root)}: lacks {missing.strip()!r}, which {path} has"
        for extra in sorted(set(untranslated(theirs)) - set(untranslated(text))):
            yield f"{other.relative_to(root)}: has {extra.strip()!r}, which {path} lacks"


CHINESE = "zh-CN"  # the folder of the tutorial's pages in Chinese


def same_in_each(folder, text):
    """What a page and its translation have alike: code, whole and in order; code in the text, figures, and what links lead to."""
    prose = FENCE.sub("", text)
    words = {f"`{code}`" for code in re.findall(r"`([^`]+)`", re.sub(r"\s+", " ", prose))}
    words |= set(re.findall(r"\d+\.\d+|\d+ (?:[MG]b/s|[MG]B/s|us|[KMG]iB|%)", prose))
    for link in (match.group(1) or match.group(2) for match in LINK.finditer(prose)):
        file, _, fragment = link.partition("#")
        if file in (f"{CHINESE}/README.md", "../README.md"):
            continue  # from one language to the other
        if "/" in file:
            words.add(f"a link to {(folder / file).resolve().name}{fragment and '#'}{fragment}")
        else:  # another chapter, whose headings are in its own language
            words.add(f"a link to {file}")
    return [block for _, block in FENCE.findall(text)], words


def stale_tutorial(root):
    folder = root / "docs/tutorial"
    if not (folder / CHINESE).exists():  # the README links to it
        return
    pages, theirs = ({path.name for path in place.glob("*.md")} for place in (folder, folder / CHINESE))
    for name in sorted(pages ^ theirs):
        yield f"docs/tutorial/{name}: is not in both languages (docs/tutorial and docs/tutorial/{CHINESE})"
    for name in sorted(pages & theirs):
        where = f"docs/tutorial/{CHINESE}/{name}"
        code, said = same_in_each(folder, (folder / name).read_text())
        their_code, their_said = same_in_each(folder / CHINESE, (root / where).read_text())
        if code != their_code:
            yield f"{where}: its code is not that of docs/tutorial/{name}"
        for missing in sorted(said - their_said):
            yield f"{where}: lacks {missing}, which docs/tutorial/{name} has"
        for extra in sorted(their_said - said):
            yield f"{where}: has {extra}, which docs/tutorial/{name} lacks"


def lines_of(code):
    """The lines of a program without their indentation and without empty ones."""
    return [line.strip() for line in code.split("\n") if line.strip()]


def stale_excerpts(root):
    """What a chapter of the tutorial shows of its program is in that program, and each chapter's program is short."""
    for page in sorted((root / "docs/tutorial").glob("[0-9]*.md")):
        number = page.name.split("-")[0]
        programs = sorted((root / "examples").glob(f"{number}_*"))
        if len(programs) != 1:
            yield f"docs/tutorial/{page.name}: has {len(programs)} programs examples/{number}_*"
            continue
        program = lines_of(programs[0].read_text())
        if (count := programs[0].read_text().count("\n")) > TUTORIAL_LINES:
            yield f"examples/{programs[0].name}: {count} lines; a program of the tutorial has at most {TUTORIAL_LINES}"
        for language, block in FENCE.findall(page.read_text()):
            shown = lines_of(block)
            if language in ("cpp", "python") and not any(program[at : at + len(shown)] == shown for at in range(len(program))):
                yield f"docs/tutorial/{page.name}: shows what examples/{programs[0].name} does not have: {shown[0]}"


def variables(text):
    """Those of a table's first column; `_MTU` behind `FAIRWAY_RDMA_DEVICES` stands for `FAIRWAY_RDMA_MTU`."""
    for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
        named = re.findall(r"`(FAIRWAY_\w+|_[A-Z_]+)`", row)
        for name in named:
            yield named[0].rpartition("_")[0] + name if name.startswith("_") else name


def wrong_variables(root):
    page, source = root / "docs/nccl.md", root / "plugins/nccl_net/settings.cc"
    if not source.exists():
        return
    told, read = set(variables(page.read_text())), set(re.findall(r'"(FAIRWAY_\w+)"', source.read_text()))
    for name in sorted(read - told):
        yield f"docs/nccl.md: the table has no {name}, which plugins/nccl_net/settings.cc reads"
    for name in sorted(told - read):
        yield f"docs/nccl.md: the table has {name}, which plugins/nccl_net/settings.cc does not read"


def wrong_version(root):
    changelog, project = root / "CHANGELOG.md", root / "CMakeLists.txt"
    if not changelog.exists() or not project.exists():
        return
    told = re.search(r"^## \[(\d[\d.]*)\]", changelog.read_text(), re.MULTILINE)
    built = re.search(r"^project\(\w+ VERSION ([\d.]+)", project.read_text(), re.MULTILINE)
    if told and built and told.group(1) != built.group(1):
        yield f"CHANGELOG.md: the newest release is {told.group(1)}, and CMakeLists.txt has {built.group(1)}"


def wrong_recipe(root):
    recipe, project = root / "packaging/spack/packages/fairway/package.py", root / "CMakeLists.txt"
    if not recipe.exists() or not project.exists():
        return
    text = recipe.read_text()
    for version in sorted(set(re.findall(r'version\("([\d.]+)"|fairway@([\d.]+)', text))):
        if (told := "".join(version)) not in re.findall(r"^project\(\w+ VERSION ([\d.]+)", project.read_text(), re.MULTILINE):
            yield f"{recipe.relative_to(root)}: has version {told}, and CMakeLists.txt another"
    made = "".join((root / path).read_text() for path in tree.files(root, ".cmake", ".txt"))
    known = set(re.findall(r"(?:option|set|find_program)\((FAIRWAY_\w+)", made))
    known |= {f"FAIRWAY_WITH_{name}" for name in re.findall(r"^fairway_optional\((\w+)", made, re.MULTILINE)}
    for switch in sorted(set(re.findall(r'"(FAIRWAY_\w+)"', text)) - known):
        yield f"{recipe.relative_to(root)}: CMake has no {switch}"


def unnamed_labels(root):
    """Each label that a test can have is one that CONTRIBUTING.md and `make help` name."""
    made = root / "cmake/fairway_test.cmake"
    if not made.exists():
        return
    labels = re.search(r"^set\(FAIRWAY_TEST_LABELS ([\w ]+)\)", made.read_text(), re.MULTILINE).group(1).split()
    for path in ("CONTRIBUTING.md", "Makefile"):
        text = (root / path).read_text()
        told = re.search(r"The labels are (.*?)\.\s" if path.endswith(".md") else r"\(unit (.*?)\)", text, re.DOTALL)
        for label in labels:
            if not told or label not in re.findall(r"\w+", told.group(0)):
                yield f"{path}: does not name the label {label} of cmake/fairway_test.cmake"


def check(root):
    yield from unnamed_labels(root)
    yield from wrong_recipe(root)
    yield from wrong_variables(root)
    yield from wrong_version(root)
    yield from stale_excerpts(root)
    yield from stale_tutorial(root)
    for path in tree.files(root, ".md"):
        text = (root / path).read_text()
        yield from broken_links(root, path, text)
        if path.name == "README.md":
            yield from broken_commands(root, path, text)
            yield from stale_translations(root, path, text)


if __name__ == "__main__":
    tree.main(check)
