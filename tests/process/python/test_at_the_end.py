"""The end of the interpreter beside threads that are in an engine. `make test-long` ends more often (FAIRWAY_LONG)."""

import os
import subprocess
import sys
import textwrap
import unittest

LONG = bool(os.environ.get("FAIRWAY_LONG"))


class AtTheEnd(unittest.TestCase):
    """The interpreter ends beside threads that are in the engine, or have started something that goes on."""

    def ends(self, script, expected="", times=5):
        for _ in range(40 if LONG else times):
            done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)

    def test_daemon_threads_that_wait_in_an_engine(self):
        self.ends("""
            import fairway, threading, time
            one, two = fairway.Engine(), fairway.Engine()
            peer = one.connect(two.address)
            def wait(call):
                while True:
                    try:
                        call()
                    except fairway.Error:
                        time.sleep(0.001)
            for call in (one.wait_notification, one.wait_peer_event, lambda: one.wait_counter(1, 1), peer.receive(1, bytearray(8)).wait, one.metrics):
                threading.Thread(target=wait, args=(call,), daemon=True).start()
        """)

    def test_a_communicator_whose_making_was_interrupted(self):
        self.ends("""
            import fairway, signal, socket
            listener = socket.create_server(('127.0.0.1', 0))  # accepts, and says nothing
            engine = fairway.Engine()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                fairway.Communicator(engine, 0, [engine.address, '127.0.0.1:%d' % listener.getsockname()[1]], timeout=1.0)
            except KeyboardInterrupt:
                print('interrupted')
        """, "interrupted\n", times=2)

    def test_an_operation_outlives_its_communicator(self):
        self.ends("""
            import fairway, numpy
            engine = fairway.Engine()
            group = fairway.Communicator(engine, 0, [engine.address])
            operation = group.all_reduce(numpy.ones(4), wait=False)
            operation.wait()
            del group
            engine.close()  # at once: it does not wait for a communicator that nobody can close
            print('closed')
        """, "closed\n", times=2)

    def test_a_callback_that_lets_go_of_the_last_of_a_group(self):
        self.ends("""
            import fairway, numpy
            engine = fairway.Engine()
            group = fairway.Communicator(engine, 0, [engine.address])
            for _ in range(50):
                group.all_reduce(numpy.ones(4), wait=False).add_done_callback(lambda done: None)
            del group
        """)


if __name__ == "__main__":
    unittest.main()
