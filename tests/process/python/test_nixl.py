"""NIXL's API on Fairway: what NIXL's programs do, and what is safe here where NIXL leaves it open."""

import gc
import pickle
import random
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import weakref
from unittest import mock

import fairway.nixl as nixl
import numpy as np
from fairway.nixl import _bindings as bind
from fairway.nixl import _notes
from fairway.nixl._remote import RemoteAgent
from fairway.nixl._transfers import joined


def rows(array, count):
    """`count` equal pieces of an array as N x 3 descriptors."""
    size = array.nbytes // count
    return np.array([(array.ctypes.data + i * size, size, 0) for i in range(count)], np.uint64)


class Agents(unittest.TestCase):
    def setUp(self):
        self.one, self.two = self.agent("one"), self.agent("two")
        self.source, self.target = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8)
        self.one_regs = self.one.register_memory([(self.source.ctypes.data, 4096, 0, "")], "DRAM")
        self.two_regs = self.two.register_memory([(self.target.ctypes.data, 4096, 0, "")], "DRAM")
        self.assertEqual(self.one.add_remote_agent(self.two.get_agent_metadata()), b"two")
        self.two.add_remote_agent(self.one.get_agent_metadata())

    def agent(self, name, **config):
        made = nixl.nixl_agent(name, nixl.nixl_agent_config(**config))
        self.addCleanup(made.agent.engine.close)
        return made

    def run_to_end(self, agent, handle):
        state = agent.transfer(handle)
        deadline = time.monotonic() + 60
        while state == "PROC" and time.monotonic() < deadline:
            state = agent.check_xfer_state(handle)
        self.assertEqual(state, "DONE")

    def notif(self, agent, name, tag):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if agent.check_remote_xfer_done(name, tag):
                return
        self.fail(f"no notification {tag[:20]}")

    def test_prepared_lists_move_what_indices_pick(self):
        here = self.one.prep_xfer_dlist("NIXL_INIT_AGENT", rows(self.source, 16), "DRAM")
        there = self.one.prep_xfer_dlist("two", rows(self.target, 16), "DRAM")
        handle = self.one.make_prepped_xfer("WRITE", here, [3, 1], there, np.array([0, 2], np.int32), b"done")
        for _ in range(3):  # posted again when it is done
            self.target[:] = 0
            self.run_to_end(self.one, handle)
            self.notif(self.two, "one", b"done")
            np.testing.assert_array_equal(self.target[:256], self.source[3 * 256 : 4 * 256])
            np.testing.assert_array_equal(self.target[512:768], self.source[256:512])
        self.assertEqual(self.one.query_xfer_backend(handle), "UCX")
        handle.release()
        with self.assertRaises(bind.nixlInvalidParamError):
            self.one.check_xfer_state(handle)

    def test_descriptors_in_a_row_move_as_one(self):
        table = np.array([[0, 0, 1, 64, 8], [0, 8, 1, 72, 8], [0, 16, 1, 96, 8],  # the third goes elsewhere
                          [0, 24, 1, 104, 8], [1, 32, 1, 112, 8], [1, 40, 2, 120, 8], [1, 40, 2, 128, 4]])
        expected = [[0, 0, 1, 64, 16], [0, 16, 1, 96, 16], [1, 32, 1, 112, 8], [1, 40, 2, 120, 8], [1, 40, 2, 128, 4]]
        np.testing.assert_array_equal(joined(table), expected)
        for few in (table[:1], table[:0]):
            np.testing.assert_array_equal(joined(few), few)

    def test_lists_read_too(self):
        into = self.two.get_xfer_descs(rows(self.target, 4), "DRAM")
        from_one = self.two.get_xfer_descs([(self.source.ctypes.data + i * 1024, 1024, 0) for i in range(4)], "DRAM")
        self.run_to_end(self.two, self.two.initialize_xfer("READ", into, from_one, "one"))
        np.testing.assert_array_equal(self.target, self.source)

    def test_notifications_have_any_length(self):
        for size in (0, 1, 254, 255, 256, 1000, 100_000):
            message = bytes(random.Random(size).randbytes(size)) or b""
            self.one.send_notif("two", message)
            deadline = time.monotonic() + 60
            found = {}
            while not found and time.monotonic() < deadline:
                found = self.two.get_new_notifs()
            self.assertEqual(found, {"one": [message]})
        descs = self.one.get_xfer_descs(rows(self.source, 1), "DRAM"), self.one.get_xfer_descs(rows(self.target, 1), "DRAM")
        handle = self.one.initialize_xfer("WRITE", *descs, "two", b"long " * 500)
        self.run_to_end(self.one, handle)
        self.notif(self.two, "one", b"long " * 500)

    def test_release_in_flight_is_fenced(self):
        big = np.zeros(64 << 20, np.uint8)
        self.one.register_memory([(big.ctypes.data, big.nbytes, 0, "")], "DRAM")
        far = np.zeros(64 << 20, np.uint8)
        self.two.register_memory([(far.ctypes.data, far.nbytes, 0, "")], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        into = self.one.get_xfer_descs([(big.ctypes.data, big.nbytes, 0)], "DRAM")
        from_far = self.one.get_xfer_descs([(far.ctypes.data, far.nbytes, 0)], "DRAM")
        far[:] = 1
        for _ in range(5):
            handle = self.one.initialize_xfer("READ", into, from_far, "two")
            self.one.transfer(handle)
            self.one.release_xfer_handle(handle)
            before = int(big[:: 4096].sum())
            time.sleep(0.02)
            self.assertEqual(int(big[:: 4096].sum()), before)  # nothing lands behind it

    def test_posting_twice_and_unknown_things(self):
        with self.assertRaises(bind.nixlNotFoundError):
            self.one.prep_xfer_dlist("nobody", rows(self.target, 4), "DRAM")
        outside = [(self.target.ctypes.data + 4000, 200, 0)]
        with self.assertRaisesRegex(bind.nixlNotFoundError, "told of no registered memory with 200 bytes"):
            self.one.prep_xfer_dlist("two", outside, "DRAM")
        with self.assertRaises(bind.nixlNotFoundError):
            self.one.prep_xfer_dlist("", [(12345, 200, 0)], "DRAM")
        here = self.one.prep_xfer_dlist("", rows(self.source, 16), "DRAM")
        there = self.one.prep_xfer_dlist("two", rows(self.target, 16), "DRAM")
        for bad in ([16], [-1], [], [0.5]):
            with self.assertRaises(bind.nixlInvalidParamError):
                self.one.make_prepped_xfer("WRITE", here, bad, there, bad)
        for words, call in (
            ("no operation 'MOVE': there are 'WRITE', 'READ'", lambda: self.one.make_prepped_xfer("MOVE", here, [0], there, [0])),
            ("no operation 'write'", lambda: self.one.initialize_xfer("write", None, None, "two")),
            ("no memory type 'GPU': there are 'DRAM'", lambda: self.one.get_xfer_descs([(1, 2, 0)], "GPU")),
            ("no backend 'GDS': there is 'UCX'", lambda: self.one.register_memory([(1, 2, 0, "")], "DRAM", backends=["GDS"])),
            ("no backend 'GDS'", lambda: self.one.send_notif("two", b"", backend="GDS")),
        ):
            with self.assertRaisesRegex(bind.nixlInvalidParamError, words):
                call()
        with self.assertRaises(bind.nixlNotFoundError):
            self.one.deregister_memory(self.one.get_reg_descs([(1, 2, 0, "")], "DRAM"))
        with self.assertRaises(bind.nixlNotFoundError):
            self.one.create_backend("GDS")
        with self.assertRaises(bind.nixlNotSupportedError):
            self.one.prep_mem_view(self.one.get_xfer_descs(rows(self.source, 1), "DRAM"))

    def test_metadata_that_were_cut_or_flipped(self):
        good = self.two.get_agent_metadata()
        chance = random.Random(24)
        for _ in range(3000):
            bad = bytearray(good)
            for _ in range(chance.randint(1, 4)):
                bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            bad = bytes(bad[: chance.randrange(len(bad) + 1)])
            if bad == good:
                continue
            with self.assertRaises((bind.nixlInvalidParamError, bind.nixlMismatchError)):
                self.one.add_remote_agent(bad)
        for bit in range(8 * len(good)):  # each one alone
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            with self.assertRaises((bind.nixlInvalidParamError, bind.nixlMismatchError)):
                self.one.add_remote_agent(bytes(bad))
        with self.assertRaises(TypeError):
            self.one.add_remote_agent("text")

    def test_arguments_that_make_no_sense(self):
        here = self.source.ctypes.data
        for wrong in ([(-5, 10, 0, "")], [(1 << 70, 10, 0, "")], [("5", 10, 0, "")], [], [(here, 10, 0)], np.array([here, 10, 0])):
            with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                self.one.register_memory(wrong, "DRAM")
        for call in (self.one.deregister_memory, self.one.get_partial_agent_metadata, lambda name: nixl.nixl_agent(5)):
            with self.assertRaises(TypeError):
                call(None)
        for wrong in (5, 1.5, ["x"]):
            with self.assertRaises(TypeError):
                self.one.send_notif("two", wrong)
        with self.assertRaises(bind.nixlNotFoundError):  # it would wrap around
            self.one.prep_xfer_dlist("", np.array([(here + 10, (1 << 64) - 5, 0)], np.uint64), "DRAM")

    def test_notifications_of_a_peer_that_is_no_agent(self):
        bell = self.one.agent.remotes["two"]
        bell.connect(60)
        for words in (b"", b"\1", b"\1" * 9, b"\7nonsense", struct.pack("<BIHH", 1, 7, 5, 2), struct.pack("<BIHH", 1, 8, 0, 0)):
            self.one.agent.engine.write(b"\0", bell.bell[0:1], notify=(_notes.IMMEDIATE, words)).wait(60)
        self.one.send_notif("two", b"still here")
        self.notif(self.two, "one", b"still here")

    def test_descriptors_of_peers_are_not_code(self):
        descs = self.one.get_xfer_descs(rows(self.source, 4), "DRAM")
        self.assertEqual(self.one.deserialize_descs(self.one.get_serialized_descs(descs)), descs)

        class Evil:
            def __reduce__(self):
                return print, ("run",)

        with self.assertRaises(pickle.UnpicklingError):
            self.one.deserialize_descs(pickle.dumps(Evil()))

    def test_partial_metadata(self):
        three = self.agent("three")
        more = np.zeros(1024, np.uint8)
        regs = three.register_memory([(more.ctypes.data, 1024, 0, "")], "DRAM")
        wanted = regs.trim()
        self.assertFalse(self.one.check_remote_metadata("three"))
        self.one.add_remote_agent(three.get_partial_agent_metadata(three.get_reg_descs([(more.ctypes.data, 1024, 0, "")], "DRAM")))
        self.assertFalse(self.one.check_remote_metadata("three"))  # descriptors, but no way there
        self.one.add_remote_agent(three.get_partial_agent_metadata(bind.nixlRegDList(bind.DRAM_SEG), inc_conn_info=True))
        self.assertTrue(self.one.check_remote_metadata("three"))
        self.one.add_remote_agent(three.get_partial_agent_metadata(regs, inc_conn_info=True))
        self.assertTrue(self.one.check_remote_metadata("three", wanted))
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", self.one.get_xfer_descs([(self.source.ctypes.data, 1024, 0)], "DRAM"), wanted, "three"))
        np.testing.assert_array_equal(more, self.source[:1024])
        self.one.remove_remote_agent("three")
        self.assertFalse(self.one.check_remote_metadata("three"))

    def test_listeners_exchange_metadata(self):
        left, right = self.agent("left", enable_listen_thread=True, listen_port=0), self.agent("right", enable_listen_thread=True, listen_port=0)
        port = right.agent.listener.port
        left.fetch_remote_metadata("right", "127.0.0.1", port)
        left.send_local_metadata("127.0.0.1", port)
        self.assertTrue(left.check_remote_metadata("right"))
        self.assertTrue(right.check_remote_metadata("left"))
        left.send_notif("right", b"hello")
        self.notif(right, "left", b"hello")
        left.invalidate_local_metadata("127.0.0.1", port)
        self.assertFalse(right.check_remote_metadata("left"))
        with self.assertRaises(bind.nixlNotFoundError):
            left.fetch_remote_metadata("someone", "127.0.0.1", port)
        with self.assertRaises(bind.nixlBackendError):
            left.fetch_remote_metadata("right", "127.0.0.1", 1)
        with self.assertRaises(bind.nixlInvalidParamError):
            left.send_local_metadata()
        with socket.create_server(("127.0.0.1", 0)) as ended:  # connected, and then nobody is there
            threading.Thread(target=lambda: ended.accept()[0].close()).start()
            left.invalidate_local_metadata("127.0.0.1", ended.getsockname()[1])
        left.invalidate_local_metadata("127.0.0.1", 1)
        with self.assertRaises(bind.nixlBackendError):
            left.send_local_metadata("127.0.0.1", 1)

    def test_a_restarted_agent_is_reached_again(self):
        descs = self.one.get_xfer_descs(rows(self.source, 1), "DRAM"), self.one.get_xfer_descs(rows(self.target, 1), "DRAM")
        handle = self.one.initialize_xfer("WRITE", *descs, "two")
        self.run_to_end(self.one, handle)
        self.two.agent.engine.close()
        with self.assertRaises(bind.nixlRemoteDisconnectError), mock.patch.object(RemoteAgent, "CONNECT_SECONDS", 0.5):
            for _ in range(100):
                self.run_to_end(self.one, handle)
        again = self.agent("two")
        again.register_memory([(self.target.ctypes.data, 4096, 0, "")], "DRAM")
        self.one.add_remote_agent(again.get_agent_metadata())
        self.target[:] = 0
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", *descs, "two"))
        np.testing.assert_array_equal(self.target, self.source)

    def test_refreshed_metadata_replace_what_was_known(self):
        """Registered anew at the same place, longer, or not at all: the newest metadata are what holds, and lists that were prepared
        before mean the memory as it is now."""
        whole = self.one.get_xfer_descs(rows(self.source, 1), "DRAM"), self.one.get_xfer_descs(rows(self.target, 1), "DRAM")
        handle = self.one.initialize_xfer("WRITE", *whole, "two")
        self.run_to_end(self.one, handle)
        self.two.deregister_memory(self.two_regs)
        short = self.two.register_memory([(self.target.ctypes.data, 1024, 0, "")], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        with self.assertRaisesRegex(bind.nixlNotFoundError, "told of no registered memory with 4096 bytes"):
            self.one.initialize_xfer("WRITE", *whole, "two")
        self.assertFalse(self.one.check_remote_metadata("two", whole[1]))
        for length in (1024, 4096):
            self.target[:] = 0
            descs = [self.one.get_xfer_descs([(array.ctypes.data, length, 0)], "DRAM") for array in (self.source, self.target)]
            self.run_to_end(self.one, self.one.initialize_xfer("WRITE", *descs, "two"))
            np.testing.assert_array_equal(self.target[:length], self.source[:length])
            if length == 1024:
                self.two.deregister_memory(short)
                self.two.register_memory([(self.target.ctypes.data, 4096, 0, "")], "DRAM")
                self.one.add_remote_agent(self.two.get_agent_metadata())
        again = self.one.initialize_xfer("WRITE", *whole, "two")
        self.run_to_end(self.one, again)
        self.two.deregister_memory(self.two_regs)  # names the same bytes
        self.two.register_memory([(self.target.ctypes.data, 4096, 0, "")], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        self.target[:] = 0
        self.run_to_end(self.one, again)
        np.testing.assert_array_equal(self.target, self.source)
        part = self.two.get_partial_agent_metadata(self.two.get_reg_descs([(self.target.ctypes.data, 4096, 0, "")], "DRAM"), inc_conn_info=True)
        more = np.zeros(64, np.uint8)
        self.two.register_memory([(more.ctypes.data, 64, 0, "")], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        self.one.add_remote_agent(part)  # a part takes nothing away
        self.assertTrue(self.one.check_remote_metadata("two", self.one.get_xfer_descs([(more.ctypes.data, 64, 0)], "DRAM")))

    def test_an_agent_moves_within_itself(self):
        into = np.zeros(4096, np.uint8)
        regs = self.one.register_memory([(into.ctypes.data, 4096, 0, "")], "DRAM")
        descs = self.one.get_xfer_descs(rows(self.source, 4), "DRAM"), self.one.get_xfer_descs(rows(into, 4), "DRAM")
        self.one.make_connection("one")
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", *descs, "one", b"to myself"))
        np.testing.assert_array_equal(into, self.source)
        self.notif(self.one, "one", b"to myself")
        self.one.send_notif("one", b"long " * 500)
        self.notif(self.one, "one", b"long " * 500)
        self.one.add_remote_agent(self.one.get_agent_metadata())
        self.source[:] = 9
        self.run_to_end(self.one, self.one.initialize_xfer("READ", descs[1], descs[0], "one"))
        np.testing.assert_array_equal(into, 9)
        self.one.deregister_memory(regs)
        with self.assertRaises(bind.nixlNotFoundError):
            self.one.initialize_xfer("WRITE", *descs, "one")
        self.one.remove_remote_agent("one")

    def test_more_regions_than_an_engine_has_by_default(self):
        block = np.arange(5000 * 64 // 8, dtype=np.uint64).view(np.uint8)
        into = np.zeros_like(block)
        places = [[(array.ctypes.data + i * 64, 64, 0, "") for i in range(5000)] for array in (block, into)]
        self.one.register_memory(places[0], "DRAM")
        self.two.register_memory(places[1], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        descs = [self.one.get_xfer_descs([place[:3] for place in side], "DRAM") for side in places]
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", *descs, "two"))
        np.testing.assert_array_equal(into, block)

    PEER = """
        import sys, time
        import numpy as np
        import fairway.nixl as nixl
        agent = nixl.nixl_agent("child", nixl.nixl_agent_config())
        memory = np.zeros(4096, np.uint8)
        agent.register_memory([(memory.ctypes.data, 4096, 0, "")], "DRAM")
        print(memory.ctypes.data, agent.get_agent_metadata().hex(), flush=True)
        sys.stdin.read()  # lives, and asks for no notifications
    """

    def child(self):
        """(process, descriptors of its memory), known to `one` by its metadata."""
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(self.PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for clean in (child.stdin.close, child.stdout.close, child.wait, child.kill):
            self.addCleanup(clean)
        address, metadata = child.stdout.readline().split()
        self.one.add_remote_agent(bytes.fromhex(metadata))
        return child, self.one.get_xfer_descs([(int(address), 4096, 0)], "DRAM")

    def test_calls_to_a_dead_agent_return_at_once_with_the_reason(self):
        child, there = self.child()
        here = self.one.get_xfer_descs(rows(self.source, 1), "DRAM")
        handle = self.one.initialize_xfer("WRITE", here, there, "child", b"x")
        self.run_to_end(self.one, handle)
        child.kill()
        child.wait()
        with mock.patch.object(RemoteAgent, "CONNECT_SECONDS", 600):  # what waits for the attempt fails by time
            with self.assertRaises(bind.nixlRemoteDisconnectError):
                for _ in range(1000):  # until its death is known
                    self.run_to_end(self.one, handle)
            calls = (lambda: self.one.send_notif("child", b"hello"), lambda: self.one.transfer(handle), lambda: self.one.make_connection("child"))
            began = time.monotonic()
            for call in calls * 3:
                with self.assertRaisesRegex(bind.nixlRemoteDisconnectError, "peer_dead|unreachable"):
                    call()
            self.assertLess(time.monotonic() - began, 300)
        self.one.remove_remote_agent("child")

    def test_an_agent_that_was_never_there(self):
        gone = self.agent("gone")
        metadata = gone.get_agent_metadata()
        gone.agent.engine.close()
        with mock.patch.object(RemoteAgent, "CONNECT_SECONDS", 1):
            self.one.add_remote_agent(metadata)
            self.one.send_notif("gone", b"into the blue")  # nobody knows yet that it is
            with self.assertRaises(bind.nixlRemoteDisconnectError):
                self.one.make_connection("gone")
            with self.assertRaises(bind.nixlRemoteDisconnectError):
                self.one.send_notif("gone", b"again")

    def test_an_agent_that_reads_no_notifications_delays_nobody(self):
        _, there = self.child()
        here = self.one.get_xfer_descs(rows(self.source, 1), "DRAM")
        began = time.monotonic()
        for number in range(2000):
            self.one.send_notif("child", b"x" * 100)
        self.assertLess(time.monotonic() - began, 60)
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", here, there, "child"))  # bytes need nobody's attention
        with self.assertRaisesRegex(bind.nixlNotAllowedError, "reads no notifications"):
            for number in range(RemoteAgent.UNREAD):
                self.one.send_notif("child", b"x")
        self.one.send_notif("two", b"another hears at once")
        self.notif(self.two, "one", b"another hears at once")

    def test_threads_that_add_use_and_remove_an_agent(self):
        metadata, errors = self.two.get_agent_metadata(), []
        here, there = self.one.get_xfer_descs(rows(self.source, 4), "DRAM"), self.one.get_xfer_descs(rows(self.target, 4), "DRAM")

        def work():
            for _ in range(100):
                try:
                    self.one.add_remote_agent(metadata)
                    self.one.send_notif("two", b"x")
                    self.one.check_remote_metadata("two", there)
                    handle = self.one.initialize_xfer("WRITE", here, there, "two", b"y")
                    self.one.transfer(handle)
                    self.one.release_xfer_handle(handle)
                    self.two.get_new_notifs()
                    self.one.remove_remote_agent("two")
                except (bind.nixlNotFoundError, bind.nixlCancelledError):
                    pass  # another thread has removed it
                except Exception as error:
                    errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_an_agent_with_a_listener_goes_with_its_last_user_and_gives_its_port_back(self):
        made = nixl.nixl_agent("listening", nixl.nixl_agent_config(enable_listen_thread=True, listen_port=0))
        port, seen = made.agent.listener.port, weakref.ref(made.agent)
        self.two.fetch_remote_metadata("listening", "127.0.0.1", port)
        del made
        gc.collect()
        self.assertIsNone(seen())
        self.agent("next", enable_listen_thread=True, listen_port=port)

    def test_exceptions_go_to_other_processes(self):
        for name, kind in vars(bind).items():
            if isinstance(kind, type) and issubclass(kind, Exception):
                with self.subTest(name=name):
                    again = pickle.loads(pickle.dumps(kind("what happened")))
                    self.assertEqual((type(again), str(again)), (kind, "what happened"))

    def test_telemetry_and_cost(self):
        agent = self.agent("telling", capture_telemetry=True)
        agent.register_memory([(self.source.ctypes.data, 4096, 0, "")], "DRAM")
        agent.add_remote_agent(self.two.get_agent_metadata())
        descs = agent.get_xfer_descs(rows(self.source, 4), "DRAM"), agent.get_xfer_descs(rows(self.target, 4), "DRAM")
        handle = agent.initialize_xfer("WRITE", *descs, "two")
        self.run_to_end(agent, handle)
        told = agent.get_xfer_telemetry(handle)
        self.assertEqual((told.totalBytes, told.descCount), (4096, 4))
        self.assertGreaterEqual(told.xferDuration, told.postDuration)
        with self.assertRaises(bind.nixlNoTelemetryError):
            self.one.get_xfer_telemetry(self.one.initialize_xfer("WRITE", *descs, "two"))

    def test_overlapping_regions_are_found(self):
        whole = self.source
        self.one.register_memory([(whole.ctypes.data + 1024, 16, 0, ""), (whole.ctypes.data, 2048, 0, "")], "DRAM")
        descs = self.one.get_xfer_descs([(whole.ctypes.data + 1020, 100, 0)], "DRAM"), self.one.get_xfer_descs([(self.target.ctypes.data, 100, 0)], "DRAM")
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", *descs, "two"))
        np.testing.assert_array_equal(self.target[:100], whole[1020:1120])

    def test_many_descriptors_post_quickly(self):
        pages = np.arange(10**5 * 64 // 8, dtype=np.uint64).view(np.uint8)
        into = np.zeros_like(pages)
        self.one.register_memory([(pages.ctypes.data, pages.nbytes, 0, "")], "DRAM")
        self.two.register_memory([(into.ctypes.data, into.nbytes, 0, "")], "DRAM")
        self.one.add_remote_agent(self.two.get_agent_metadata())
        here = self.one.prep_xfer_dlist("", rows(pages, 10**5), "DRAM")
        there = self.one.prep_xfer_dlist("two", rows(into, 10**5), "DRAM")
        order = np.random.default_rng(1).permutation(10**5).astype(np.int32)
        handle = self.one.make_prepped_xfer("WRITE", here, order, there, np.arange(10**5, dtype=np.int32))
        self.run_to_end(self.one, handle)
        np.testing.assert_array_equal(into.reshape(10**5, 64), pages.reshape(10**5, 64)[order])


class Programs(unittest.TestCase):
    SCRIPT = """
        import sys
        from nixl._api import nixl_agent, nixl_agent_config
        import nixl._bindings, nixl._utils
        from nixl.logging import get_logger
        print(sys.argv[1:], nixl_agent.__module__)
    """

    def test_a_script_written_for_nixl_runs(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(textwrap.dedent(self.SCRIPT))
            script.flush()
            out = subprocess.run([sys.executable, "-m", "fairway.nixl", "run", script.name, "a", "b"], capture_output=True, text=True)
        self.assertEqual(out.stdout, "['a', 'b'] fairway.nixl._api\n", out.stderr)

    def test_never_by_surprise(self):
        out = subprocess.run([sys.executable, "-c", "import fairway.nixl, sys; print('nixl' in sys.modules)"], capture_output=True, text=True)
        self.assertEqual(out.stdout, "False\n", out.stderr)
        out = subprocess.run([sys.executable, "-m", "fairway.nixl"], capture_output=True, text=True)
        self.assertEqual(out.returncode, 2)
        self.assertIn("usage:", out.stderr)


if __name__ == "__main__":
    unittest.main()
