"""Every call with every argument replaced by what it cannot be: Python's own TypeError or ValueError, or an error of Fairway's."""

import ast
import pathlib
import unittest
import warnings

import fairway
import numpy as np

from support import Pair


class Odd:
    """Has nothing that anybody asks for."""

    def __getattr__(self, name):
        raise AttributeError(name)


ENDS = {"close", "disconnect", "deregister", "end", "release", "abort", "shrink"}  # what would end the others' object


def calls():
    """(class or None, name, arguments by place, arguments by name) of what the stubs have."""
    tree = ast.parse((pathlib.Path(fairway.__file__).parent / "__init__.pyi").read_text()).body
    options = next([item.target.id for item in node.body] for node in tree if getattr(node, "name", "") == "_Options")
    for owner in [None, *(node for node in tree if isinstance(node, ast.ClassDef))]:
        for node in owner.body if owner else tree:
            if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__getitem__"):
                continue
            if "property" in map(ast.unparse, node.decorator_list) or node.name in ENDS:
                continue
            places = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
            by_name = [argument.arg for argument in node.args.kwonlyargs] + (options if node.args.kwarg else [])
            yield owner and owner.name, node.name, places, by_name


class WrongArguments(Pair):
    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")
        self.remote = self.offer(np.zeros(4096, np.uint8), "rwa")
        self.region = self.alice.register(np.zeros(4096, np.uint8), "rwa")
        self.done = self.alice.write(bytes(8), self.remote[0:8])
        self.done.wait(60)
        self.queue, self.space = self.alice.make_queue(64), self.alice.make_counters(4)
        self.group = fairway.Communicator(self.alice, 0, [self.alice.address])
        self.objects = {
            "Engine": self.alice, "Peer": self.peer, "Region": self.region, "RemoteRegion": self.remote, "RemoteArray": self.remote.array(8),
            "Request": fairway.Request, "Transfer": self.done, "Queue": self.queue, "CounterSpace": self.space, "Communicator": self.group, None: fairway,
        }
        self.right = {
            "address": self.bob.address, "timeout": 0, "array": bytearray(8), "access": "r", "nbytes": 64, "name": "m", "region": self.region,
            "local": bytes(8), "remote": self.remote[0:8], "local_index": [0], "remote_index": [0], "page_bytes": 8, "target": self.remote[0:8], "addend": 1,
            "expected": 1, "desired": 1, "requests": [fairway.Request.write(bytes(8), self.remote[0:8])], "transfers": [self.done], "peer": self.peer,
            "capacity": 4, "tag": 1, "most": 4, "immediate": 1, "at_least": 0, "count": 1, "gpu": 0, "what": self.done,
            "description": self.alice.describe(self.region), "operation": "write", "locals": [self.region], "remotes": [self.remote],
            "table": np.array([[0, 0, 0, 0, 8]]), "callback": print, "shape": (4,), "dtype": "uint8", "offset": 0, "out": np.ones(4), "op": "sum", "root": 0,
            "to": 0, "source": 0, "color": 0, "key": 0, "added": [], "most_bytes": 64, "compare": False, "send_counts": [4], "receive_counts": [4],
            "by": "automatic", "signal_value": 1, "signal_add": True, "stream": 1, "word": np.ones(4), "outcome": np.ones(4), "value": 1, "message": b"",
            "messages": [], "memory": np.ones(4), "add": False, "part": slice(0, 8), "index": 0,
        }
        self.wrong = [
            None, -1, 1.5, float("nan"), 1 << 70, "x", b"x", object(), [5], [None], {}, (1,), lambda *_: 0, Odd(), self.alice, self.peer, self.done, self.queue,
            self.region, self.remote, np.zeros((2, 2))[:, 0], np.array(["a"], object), "\udc80", "a\0b", type,
        ]

    def call(self, call, places, named):
        try:
            call(*places, **named)
        except (TypeError, ValueError, fairway.Error):
            pass  # anything else fails the test, under its name

    def test_no_call_raises_what_is_no_answer(self):
        for owner, name, places, by_name in calls():
            if owner not in self.objects:
                continue
            for argument in places + by_name:
                for wrong in self.wrong:
                    if argument == "timeout" and (wrong is None or (isinstance(wrong, (int, float)) and wrong > 0)):
                        continue  # it would wait
                    at = [wrong if place == argument else self.right.get(place) for place in places]
                    named = {"timeout": 0} if "timeout" in by_name and argument != "timeout" else {}
                    if argument in by_name:
                        named[argument] = wrong
                    with self.subTest(owner=owner, call=name, argument=argument, wrong=repr(wrong)):
                        self.call(getattr(self.objects[owner], name), at, named)
                if owner == "Engine":
                    self.alice.poll()  # what was right after all

    def test_no_option_raises_what_is_no_answer(self):
        tree = ast.parse((pathlib.Path(fairway.__file__).parent / "__init__.pyi").read_text()).body
        some = [-1, 1.5, float("nan"), 1 << 70, "x", object(), [5], {}, Odd(), "\udc80"]  # an engine that opens takes a while
        for kind, right in ((fairway.Engine, {}), (fairway.Communicator, {"engine": self.alice, "rank": 0, "addresses": [self.alice.address], "timeout": 0.01})):
            body = next(node.body for node in tree if getattr(node, "name", "") == kind.__name__)
            init = next(node for node in body if getattr(node, "name", "") == "__init__")
            for argument in [*(one.arg for one in init.args.args[1:]), *(one.arg for one in init.args.kwonlyargs)]:
                for wrong in some:
                    with self.subTest(kind=kind.__name__, argument=argument, wrong=repr(wrong)):
                        self.call(lambda **options: kind(**options).close(), [], right | {argument: wrong})

    def test_extents_between_what_makes_its_items_anew(self):
        """Each item of an array is an object of its own, which nothing keeps."""
        remote = self.remote
        table = np.array([[0, 0, 0, 0, 8]])
        for locals_, remotes, words in (
            (np.zeros(4), [remote], "shows no memory|strided|0 bytes|other|float64"), ([np.zeros(8)], np.zeros(4), "the remote side is a RemoteRegion"),
            ("ab", [remote], "str shows no memory"), ([np.zeros(8)], "ab", "the remote side is a RemoteRegion"),
        ):
            for _ in range(100):
                try:
                    fairway.Request.extents("write", locals_, remotes, table)
                except fairway.InvalidArgument as error:
                    self.assertRegex(str(error), words)


if __name__ == "__main__":
    unittest.main()
