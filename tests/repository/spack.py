"""The recipe for Spack fits CMake: it sets options that there are, and has this version. Spack itself is not needed: what the
recipe asks of it is recorded here."""

import re
import sys
import types

import tree

RECIPE = "packaging/spack/packages/fairway/package.py"


class Recorded:
    """Spack's words, as the recipe uses them."""

    def __init__(self):
        self.variants, self.versions, self.needs, self.problems = set(), set(), set(), []

    def depends(self, what, when="", **_):
        self.needs.add(re.split("[@+~%]", what)[0])
        self.known(when[1:] if when else None, what)

    def known(self, variant, user):
        if variant is not None and variant not in self.variants:
            self.problems.append(f"{RECIPE}: {user} is of a variant '{variant}' that is not declared")

    def package(self):
        """The base class, whose variants are all `on` or all off."""
        recorded = self

        class CMakePackage:
            on = True
            define = staticmethod(lambda name, value: name)

            def define_from_variant(self, name, variant):
                recorded.known(variant, name)
                return name

            @property
            def spec(self):
                on = self.on

                class Spec:
                    satisfies = staticmethod(lambda what: on == what.startswith("+"))

                    def __getitem__(self, name):
                        if name not in recorded.needs:
                            recorded.problems.append(f"{RECIPE}: uses {name}, on which it does not depend")
                        return types.SimpleNamespace(command=types.SimpleNamespace(path=""), package=types.SimpleNamespace(platlib=""))

                return Spec()

        return CMakePackage

    def module(self):
        words = types.ModuleType("spack.package")
        words.CMakePackage = self.package()
        words.variant = lambda name, **_: self.variants.add(name)
        words.version = lambda text, **_: self.versions.add(text)
        words.depends_on = words.extends = self.depends
        words.license = words.generator = words.conflicts = lambda *_, **__: None
        return words


def arguments_of(text, recorded):
    """The names that the recipe's cmake_args() sets, with all variants and with none."""
    words = recorded.module()
    before = {name: sys.modules.get(name) for name in ("spack", "spack.package")}
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": words})
    try:
        names = {}
        exec(compile(text, RECIPE, "exec"), names)
        found = set()
        for words.CMakePackage.on in (True, False):
            found.update(names["Fairway"]().cmake_args())
        return found
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def check(root):
    recorded = Recorded()
    used = arguments_of((root / RECIPE).read_text(), recorded)
    yield from dict.fromkeys(recorded.problems)
    files = [root / "CMakeLists.txt", *root.glob("cmake/*.cmake"), *root.glob("plugins/**/CMakeLists.txt"), *root.glob("src/**/CMakeLists.txt")]
    text = "\n".join(each.read_text() for each in files)
    known = set(re.findall(r"(?:option|set|find_program)\(\s*(FAIRWAY_\w+)", text))
    known.update("FAIRWAY_WITH_" + each for each in re.findall(r"fairway_optional\((\w+) ", text))
    for name in sorted(used - known):
        yield f"{RECIPE}: CMake has no {name}"
    version = re.search(r"project\(fairway VERSION ([\d.]+)", text)
    if version and version[1] not in recorded.versions:
        yield f"{RECIPE}: has no version {version[1]}, which CMakeLists.txt has"


if __name__ == "__main__":
    tree.main(check)
