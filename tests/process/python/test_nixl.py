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
from unittest import mock

import fairway.nixl as nixl
import numpy as np
from fairway.nixl import _bindings as bind
from fairway.nixl import _notes
from fairway.nixl._remote import RemoteAgent
from fairway.nixl._transfers import joined

from nixl_pair import AgentPair, rows


class Agents(AgentPair):
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
        descs = self.one.get_xfer_descs(rows(self.source, 1), "DRAM")
        for wrong in (None, 5, "x", [], object()):
            for call in ("transfer", "check_xfer_state", "release_xfer_handle", "release_dlist_handle", "query_xfer_backend",
                         "estimate_xfer_cost", "get_xfer_telemetry"):
                with self.subTest(call=call, wrong=wrong), self.assertRaisesRegex(TypeError, "a handle is what"):
                    getattr(self.one, call)(wrong)
            with self.assertRaisesRegex(TypeError, "a handle is what"):
                self.one.make_prepped_xfer("WRITE", wrong, [0], wrong, [0])
            if wrong is None:
                continue
            for call in (self.one.deregister_memory, self.one.get_partial_agent_metadata,
                         lambda it: self.one.check_remote_metadata("two", it),
                         lambda it: self.one.initialize_xfer("WRITE", it, descs, "two"),
                         lambda it: self.one.initialize_xfer("WRITE", descs, it, "two")):
                with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, "a descriptor list is what"):
                    call(wrong)
        with self.assertRaisesRegex(TypeError, "nixl_conf is a nixl_agent_config"):
            nixl.nixl_agent("other", 5)
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
