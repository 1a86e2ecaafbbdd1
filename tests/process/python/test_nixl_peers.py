"""NIXL's agents over time: metadata that are refreshed, peers that die or read nothing, an agent with itself, threads."""

import gc
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import weakref
from unittest import mock

import fairway.nixl as nixl
import numpy as np
from fairway.nixl import _bindings as bind
from fairway.nixl import _listener
from fairway.nixl._remote import RemoteAgent, Sent

from nixl_pair import AgentPair, rows


class Peers(AgentPair):
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
        self.metadata = bytes.fromhex(metadata)
        self.one.add_remote_agent(self.metadata)
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
            for number in range(Sent.UNREAD):
                self.one.send_notif("child", b"x")
        self.one.remove_remote_agent("child")
        self.one.add_remote_agent(self.metadata)  # it has read no more for that
        with self.assertRaisesRegex(bind.nixlNotAllowedError, "reads no notifications"):
            for _ in range(200):  # until it is connected
                self.one.send_notif("child", b"x")
        self.run_to_end(self.one, self.one.initialize_xfer("WRITE", here, there, "child"))
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
        deadline = time.monotonic() + 60
        while seen() is not None:  # a thread may still be answering
            gc.collect()
            self.assertLess(time.monotonic(), deadline, "the listener keeps its agent")
        self.agent("next", enable_listen_thread=True, listen_port=port)

    def test_a_message_to_a_listener_that_was_overheard_is_good_for_nothing(self):
        listening = self.agent("listening", enable_listen_thread=True, listen_port=0)
        port = listening.agent.listener.port
        heard, written = [], _listener._write
        with mock.patch.object(_listener, "_write", lambda connection, *said: (heard.append(said), written(connection, *said))):
            self.two.send_local_metadata("127.0.0.1", port)
        self.assertTrue(listening.check_remote_metadata("two"))
        listening.remove_remote_agent("two")
        once, what, body = heard[0]
        for sign_with in (once, None):  # what was overheard, and, for comparison, a message for this connection
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                fresh = _listener._read_exactly(connection, len(once))
                written(connection, sign_with or fresh, what, body)
                while connection.recv(1 << 16):  # until it hangs up
                    pass
            self.assertEqual(listening.check_remote_metadata("two"), sign_with is None)

    def test_exceptions_go_to_other_processes(self):
        for name, kind in vars(bind).items():
            if isinstance(kind, type) and issubclass(kind, Exception):
                with self.subTest(name=name):
                    again = pickle.loads(pickle.dumps(kind("what happened")))
                    self.assertEqual((type(again), str(again)), (kind, "what happened"))


if __name__ == "__main__":
    unittest.main()
