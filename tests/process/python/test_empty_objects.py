"""What __new__ alone makes, as code that copies or mocks does, is an error of Python's and never a crash."""

import copy
import unittest

import fairway
from fairway import _fairway

CLASSES = [one for one in vars(_fairway).values() if isinstance(one, type)]
METHOD = type(vars(_fairway.Engine)["close"])


def bare(cls):
    """An object of the class as no call of fairway makes it."""
    return cls.__mro__[-2].__new__(cls)  # pybind11's own, which the class does not replace


class EmptyObjects(unittest.TestCase):
    def test_a_class_without_a_constructor_makes_none(self):
        without = [cls for cls in CLASSES if not isinstance(vars(cls)["__init__"], METHOD)]
        self.assertGreater(len(without), 15)
        self.assertEqual([cls.__name__ for cls in (_fairway.Engine, fairway.Loopback, fairway.Queue) if cls in without], ["Queue"])
        for cls in without:
            for make in (cls, lambda: cls.__new__(cls)):
                with self.subTest(cls=cls), self.assertRaisesRegex(TypeError, f"cannot create 'fairway.{cls.__name__}' instances"):
                    make()

    def test_every_use_of_one_says_that_it_is_empty(self):
        uses = 0
        for cls in CLASSES:
            for name, member in vars(cls).items():
                use = {
                    property: lambda: getattr(bare(cls), name),
                    METHOD: lambda: getattr(cls, name)(bare(cls)),
                }.get(type(member))
                if use is None or name in ("__init__", "__enter__", "__await__", "__eq__", "notifications", "peer_events"):  # they look at nothing
                    continue
                uses += 1
                with self.subTest(cls=cls, name=name), self.assertRaises(TypeError):
                    use()
        self.assertGreater(uses, 150)

    def test_what_has_a_constructor_is_made_by_it(self):
        for use in (
            lambda: fairway.Engine.__new__(fairway.Engine).address,
            lambda: fairway.Engine.__new__(fairway.Engine).close(),
            lambda: repr(bare(fairway.RemoteArray)),
            lambda: bare(fairway.Peer).lookup("x"),
            lambda: fairway.Engine(loopback=fairway.Loopback.__new__(fairway.Loopback)),
        ):
            with self.assertRaisesRegex(TypeError, "__new__.. made it"):
                use()

        class Forgets(fairway.Engine):
            def __init__(self):
                pass

        self.assertRaisesRegex(TypeError, "__init__", Forgets)

        class Keeps(fairway.Engine):
            def __new__(cls, *arguments, **options):
                return super().__new__(cls)

        with Keeps(name="kept") as engine:
            self.assertEqual(engine.name, "kept")

    def test_objects_of_the_library_take_none(self):
        with fairway.Engine() as engine:
            for call in (
                lambda: engine.wait_any([bare(fairway.Transfer)]),
                lambda: engine.explain(bare(fairway.Peer)),
                lambda: engine.publish("x", bare(fairway.Region)),
                lambda: engine.submit([bare(fairway.Request)]),
                lambda: engine.write(bytes(8), bare(fairway.RemoteRegion)),
                lambda: engine.write(bare(fairway.Region), bare(fairway.RemoteArray)),
                lambda: engine.flush(bare(fairway.Peer)),
                lambda: engine.fence_state(bare(fairway.Region)),
            ):
                self.assertRaisesRegex(TypeError, "__new__.. made it", call)
            self.assertRaises(TypeError, copy.copy, engine)
            self.assertRaises(TypeError, copy.deepcopy, engine.make_queue(1))


if __name__ == "__main__":
    unittest.main()
