"""The stubs, the docstrings and the module say the same names; each error is an exception of its own."""

import ast
import pathlib
import unittest

import fairway
import fairway.errors

PACKAGE = pathlib.Path(fairway.__file__).parent


def stubbed(name):
    """{class: its members, '': functions} of a stub file."""
    found = {"": set()}
    for node in ast.parse((PACKAGE / name).read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            members = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            members |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            found[node.name] = members
        elif isinstance(node, ast.FunctionDef):
            found[""].add(node.name)
    return found


class Surface(unittest.TestCase):
    def test_stubs_name_what_there_is(self):
        stubs = stubbed("__init__.pyi")
        for function in stubs.pop(""):
            self.assertTrue(callable(getattr(fairway, function)))
        for name, members in stubs.items():
            real = {member for member in dir(getattr(fairway, name)) if not member.startswith("_")} - {"engine_fd"}
            stub = {member for member in members if not member.startswith("_")}
            self.assertEqual(real, stub, name)

    def test_every_class_of_the_module_is_stubbed(self):
        classes = {name for name in fairway.__all__ if isinstance(getattr(fairway, name), type)}
        errors = {name for name in vars(fairway.errors) if isinstance(getattr(fairway.errors, name), type)}
        self.assertEqual(classes - errors, set(stubbed("__init__.pyi")) - {""})
        self.assertEqual({name for name in errors if not name.startswith("_")}, set(stubbed("errors.pyi")) - {""})

    def test_public_things_say_what_they_are(self):
        for name in ("Engine", "Region", "RemoteRegion", "RemoteArray", "Transfer", "Request", "Peer", "Notification"):
            kind = getattr(fairway, name)
            self.assertTrue(kind.__doc__, name)
        for member in ("write", "read", "write_pages", "register", "allocate", "connect", "submit", "explain", "metrics", "close"):
            self.assertGreater(len(getattr(fairway.Engine, member).__doc__), 60, member)
        for kind in vars(fairway.errors).values():
            if isinstance(kind, type) and issubclass(kind, fairway.Error):
                self.assertTrue(kind.__doc__, kind)

    def test_codes_and_exceptions_agree(self):
        kinds = fairway.errors._KINDS
        self.assertEqual(len(kinds), 25)
        for code, kind in kinds.items():
            self.assertEqual(kind.code, code)
            self.assertTrue(issubclass(kind, fairway.Error))
            self.assertEqual(str(kind("words", cause="why", peer="p", link="l")), "words")


if __name__ == "__main__":
    unittest.main()
