"""The stubs, the docstrings and the module say the same names; each error is an exception of its own."""

import ast
import builtins
import inspect
import pathlib
import pydoc
import re
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
            members |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}  # of the exceptions
            found[node.name] = members
        elif isinstance(node, ast.FunctionDef):
            found[""].add(node.name)
    return found


def calls():
    """(class or None, name, its parameters) of every function and method in the stubs that is no property."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text()).body
    options = next([item.target.id for item in node.body] for node in tree if getattr(node, "name", "") == "_Options")
    for owner in [None, *(node for node in tree if isinstance(node, ast.ClassDef))]:
        for node in owner.body if owner else tree:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or "property" in map(ast.unparse, node.decorator_list):
                continue
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            yield owner and owner.name, node.name, names, (options if node.args.kwarg else [])


class Surface(unittest.TestCase):
    def test_each_docstring_begins_with_how_the_call_is_written(self):
        for owner, name, names, options in calls():
            call = getattr(getattr(fairway, owner) if owner else fairway, name)
            if inspect.isfunction(call) or inspect.ismethod(call):
                continue  # written in Python: help() sees its signature
            text = call.__doc__ or ""
            with self.subTest(owner=owner, name=name):
                found = re.match(rf"{name}\((.*?)\)( -> [\w ]+)?\n\n.", text)
                self.assertTrue(found, text)
                said = [part.partition("=")[0] for part in re.split(r", (?![^(]*\))", found.group(1)) if part not in ("", "*")]
                self.assertIn(said, [names + options, names + ["**options"] * bool(options)])

    def test_help_is_about_what_a_person_types(self):
        text = pydoc.render_doc(fairway, renderer=pydoc.plaintext)
        self.assertIn("Moves the bytes of `local` into `remote`", text)
        for word in ("fairway::", ": handle", "class PeerDead"):
            self.assertNotIn(word, text)
        self.assertIn("class PeerDead", pydoc.render_doc(fairway.errors, renderer=pydoc.plaintext))

    def test_what_cannot_be_assigned_is_a_property_of_the_stubs(self):
        for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.assertFalse([item for item in node.body if isinstance(item, ast.AnnAssign)], node.name)

    def test_stubs_use_names_that_they_have(self):
        for name in ("__init__.pyi", "errors.pyi"):
            known = {*dir(builtins), *(dir(fairway.errors) if name == "__init__.pyi" else ())}
            tree = ast.parse((PACKAGE / name).read_text())
            for node in tree.body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    known |= {alias.asname or alias.name for alias in node.names}
                known |= {getattr(node, "name", "")} | {target.id for target in getattr(node, "targets", ())}
            used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            self.assertEqual(used - known, set(), name)

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
        for name in ("Engine", "Region", "RemoteRegion", "RemoteArray", "Transfer", "Request", "Peer", "Notification", "Communicator", "Operation"):
            kind = getattr(fairway, name)
            self.assertTrue(kind.__doc__, name)
        for member in ("write", "read", "write_pages", "register", "allocate", "connect", "submit", "explain", "metrics", "close"):
            self.assertGreater(len(getattr(fairway.Engine, member).__doc__), 60, member)
        for name, member in inspect.getmembers(fairway.Communicator, callable):
            if not name.startswith("_"):
                self.assertGreater(len(member.__doc__), 30, name)
        for kind in vars(fairway.errors).values():
            if isinstance(kind, type) and issubclass(kind, fairway.Error):
                self.assertTrue(kind.__doc__, kind)

    def test_what_runs_on_streams_is_what_takes_one(self):
        group = fairway.collectives.Collectives
        takes = [name for name, member in vars(group).items() if inspect.isfunction(member) and "stream" in inspect.signature(member).parameters]
        takes = [name for name in takes if not name.startswith("_")]
        self.assertEqual(takes, list(fairway.collectives.OPERATIONS))

    def test_codes_and_exceptions_agree(self):
        kinds = fairway.errors._KINDS
        self.assertEqual(len(kinds), 25)
        for code, kind in kinds.items():
            self.assertEqual(kind.code, code)
            self.assertTrue(issubclass(kind, fairway.Error))
            self.assertEqual(str(kind("words", cause="why", peer="p", link="l")), "words")


if __name__ == "__main__":
    unittest.main()
