"""How long things live: registrations and arrays, waits and Ctrl-C, engines and forked children."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import weakref

import fairway
import numpy as np

from support import Pair


def run(script, *arguments, timeout=120):
    """A script in a process of its own; (exit status, what it printed)."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *arguments], capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout + done.stderr


class Memory(Pair):
    def test_a_registration_lives_as_long_as_its_array(self):
        remote = self.offer(np.zeros(4096, np.uint8), "rw")
        before = self.alice.metrics()["regions"]
        array = np.ones((4, 1024), np.uint8)
        for row in array:  # one registration for all views of it
            self.alice.write(row, remote[0:1024]).wait()
        self.assertEqual(self.alice.metrics()["regions"], before + 1)
        view = array[1:]
        del array, row
        gc.collect()
        self.assertEqual(self.alice.metrics()["regions"], before + 1)  # the view keeps it
        del view
        gc.collect()
        self.assertEqual(self.alice.metrics()["regions"], before)

    def test_a_peers_region_lasts_until_all_who_looked_it_up_have_let_go(self):
        remote = self.offer(np.arange(4096, dtype=np.uint8), "r")
        name = f"region {len(self.regions)}"
        into = np.zeros(4096, np.uint8)
        for _ in range(3):
            del remote
            remote, other = self.peer.lookup(name), self.peer.lookup(name)
            described = self.peer.import_region(self.bob.describe(self.regions[-1]))
            del other, described
            self.alice.read(into, remote).wait()
        failed = []

        def look_up_and_let_go():
            try:
                for _ in range(100):
                    mine = np.zeros(4096, np.uint8)
                    self.alice.read(mine, self.peer.lookup(name)).wait()
            except fairway.Error as error:
                failed.append(error)

        threads = [threading.Thread(target=look_up_and_let_go) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.alice.read(into, remote).wait()

    def test_an_array_that_is_gone_can_never_be_written(self):
        for _ in range(20):
            source = np.full(1 << 16, 7, np.uint8)
            remote = self.offer(source, "r")
            into = np.zeros(1 << 16, np.uint8)
            self.alice.read(into, remote)  # nobody waits
            del into  # its memory may be given to the next one, but not before the transfer is over
            gc.collect()
            later = np.zeros(1 << 16, np.uint8)
            self.assertEqual(later.sum(), 0)
            time.sleep(0.001)
            self.assertEqual(later.sum(), 0)

    def test_a_region_keeps_its_array(self):
        array = np.zeros(64, np.uint8)
        seen = weakref.ref(array)
        region = self.bob.register(array, "w")
        del array
        gc.collect()
        self.assertIsNotNone(seen())
        region.deregister()
        gc.collect()
        self.assertIsNone(seen())

    def test_a_bytearray_cannot_be_resized_while_it_is_registered(self):
        memory = bytearray(64)
        region = self.bob.register(memory, "w")
        with self.assertRaises(BufferError):
            memory.extend(b"more")
        region.deregister()
        memory.extend(b"more")

    def test_memory_from_an_engine_outlives_it_while_it_is_seen(self):
        engine = fairway.Engine()
        region = engine.allocate(1 << 20, "rw")
        seen = np.asarray(memoryview(region))
        engine.close()
        del region, engine
        gc.collect()
        seen[:] = 5
        self.assertEqual(int(seen.sum()), 5 << 20)

    def test_many_short_lives_leave_nothing(self):
        remote = self.offer(np.zeros(4096, np.uint8), "rw")
        for _ in range(2000):
            self.alice.write(np.ones(512, np.uint8), remote[0:512])
        self.alice.write(np.ones(512, np.uint8), remote[0:512]).wait()
        gc.collect()
        for _ in range(100):
            self.alice.write(b"x", remote[0:1]).wait()
        self.assertLess(self.alice.metrics()["regions"], 10)
        self.assertLess(self.alice.metrics()["transfers_in_use"], 10)


class Waits(Pair):
    def test_a_wait_lets_other_threads_run(self):
        region = self.alice.register(bytearray(8), "w")
        self.alice.publish("memory", region)
        remote = self.bob.connect(self.alice.address).lookup("memory")

        def work():
            for _ in range(50):
                time.sleep(0.001)
            self.bob.write(b"12345678", remote, notify=50)

        thread = threading.Thread(target=work)
        thread.start()
        self.assertEqual(self.alice.wait_notification(60).immediate, 50)  # it comes from a thread that ran meanwhile
        thread.join()

    def test_timeouts_are_kept(self):
        waits = [
            lambda: self.bob.connect(self.alice.address).receive(1, bytearray(8)).wait(0.2),
            lambda: self.alice.wait_notification(0.2),
            lambda: self.alice.wait_counter(5, 1, 0.2),
            lambda: self.peer.lookup("nothing", 0.2),
        ]
        for wait in waits:
            began = time.monotonic()
            with self.assertRaises(fairway.TimedOut):
                wait()
            self.assertGreaterEqual(time.monotonic() - began, 0.15)
            self.assertLess(time.monotonic() - began, 30)

    def test_control_c_interrupts_every_wait(self):
        children = {}
        for wait in (
            "peer.receive(1, bytearray(8)).wait()",
            "engine.wait_notification()",
            "engine.wait_counter(1, 1)",
            "while True: engine.wait_peer_event()",
            "peer.lookup('nothing', None)",
            "engine.connect(silent, None)",
            "small.submit([fairway.Request.write(b'x', remote[0:1], after=pending)] * 9)",
            "peer.receive(1, bytearray(8), callback=lambda done: None).wait()",
            "engine.wait_any([peer.receive(1, bytearray(8)), peer.receive(2, bytearray(8))])",
            "engine.wait_any([peer.receive(1, bytearray(8)), peer.receive(2, bytearray(8), callback=lambda done: None)])",
            "engine.wait_all([peer.receive(1, bytearray(8)), peer.receive(2, bytearray(8))])",
            "small.write(b'x', remote[0:1], after=pending), small.flush(remote.peer)",
            "small.write(b'x', remote[0:1], after=pending), small.drain()",
            "engine.probe(1, timeout=None)",
            "engine.make_queue(4).wait()",
            "engine.make_counters(4).wait_notification()",
        ):
            script = f"""
                import fairway, socket
                listener = socket.create_server(('127.0.0.1', 0))  # accepts, and says nothing
                silent = '127.0.0.1:%d' % listener.getsockname()[1]
                with fairway.Engine() as engine, fairway.Engine() as other, fairway.Engine(max_transfers=4) as small:
                    peer = engine.connect(other.address)
                    region = other.allocate(8, 'w')
                    other.publish('word', region)
                    remote = small.connect(other.address).lookup('word')
                    pending = remote.peer.receive(1, bytearray(8))
                    try:
                        print('waiting', flush=True)
                        {wait}
                    except KeyboardInterrupt:
                        print('interrupted', flush=True)
            """
            children[wait] = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
            self.addCleanup(children[wait].stdout.close)
            self.addCleanup(children[wait].wait)
            self.addCleanup(children[wait].kill)
        for child in children.values():
            self.assertEqual(child.stdout.readline(), "waiting\n")
        time.sleep(0.2)  # by then it waits, on a machine with time; an earlier signal is seen all the same
        for wait, child in children.items():
            with self.subTest(wait=wait):
                child.send_signal(signal.SIGINT)
                out, _ = child.communicate(timeout=60)
                self.assertEqual((out, child.returncode), ("interrupted\n", 0))

    def test_what_an_interrupted_submit_has_started_keeps_its_memory(self):
        with fairway.Engine(max_transfers=4) as small:
            peer = small.connect(self.bob.address)
            region = self.bob.allocate(8, "w")
            self.bob.publish("word", region)
            pending = peer.receive(1, bytearray(8))
            source = np.ones(8, np.uint8)
            alive = weakref.ref(source)
            batch = [fairway.Request.write(source, peer.lookup("word"), after=pending)] * 9
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            old = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
            self.addCleanup(signal.signal, signal.SIGALRM, old)
            with self.assertRaises(KeyboardInterrupt):
                small.submit(batch)
            del source, batch
            gc.collect()
            self.assertIsNotNone(alive())

    def test_a_submit_that_waits_for_room_lets_other_threads_make_it(self):
        script = """
            import fairway, threading
            with fairway.Engine() as other, fairway.Engine(max_transfers=2) as small:
                peer = small.connect(other.address)
                region = other.allocate(8, 'w')
                other.publish('word', region)
                batch = [fairway.Request.write(b'12345678', peer.lookup('word'))] * 2
                full = [peer.receive(tag, bytearray(8)) for tag in (1, 2)]
                thread = threading.Thread(target=lambda: small.submit(batch).wait())
                thread.start()
                back = other.connect(small.address)
                for tag in (1, 2):
                    back.send(tag, b'12345678').wait()
                for one in full:
                    one.wait()
                thread.join()
                print(bytes(memoryview(region)).decode())
        """
        self.assertEqual(run(script), (0, "12345678\n"))

    def test_threads_share_an_engine(self):
        remote = self.offer(np.zeros((8, 4096), np.uint8), "rw")
        failures = []

        def work(number):
            try:
                mine = np.full(4096, number, np.uint8)
                back = np.zeros(4096, np.uint8)
                part = remote[number * 4096 : number * 4096 + 4096]
                for _ in range(200):
                    self.alice.write(mine, part).wait()
                    self.alice.read(back, part).wait()
                    if not (back == number).all():
                        raise AssertionError(f"thread {number} read others' bytes")
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_two_threads_may_wait_for_one_transfer(self):
        receive = self.bob.connect(self.alice.address).receive(4, bytearray(8))
        results = []
        threads = [threading.Thread(target=lambda: results.append(receive.wait(60))) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        self.peer.send(4, b"for four").wait()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [8, 8, 8, 8])

    def test_cancel_is_fenced(self):
        receive = self.bob.connect(self.alice.address).receive(5, bytearray(8))
        outcome = receive.cancel()
        self.assertTrue(outcome.fenced)
        self.assertIn("fenced", repr(outcome))
        with self.assertRaises(fairway.Cancelled):
            receive.wait()

    def test_progress_by_the_caller(self):
        with fairway.Engine(progress="caller") as one, fairway.Engine() as two:
            region = two.allocate(4096, "rw")
            two.publish("r", region)
            remote = one.connect(two.address).lookup("r")
            self.assertEqual(one.write(b"x" * 4096, remote).wait(60), 4096)
            seen = []
            one.write(b"y" * 4096, remote, callback=seen.append)
            while not seen:
                one.poll()
            self.assertEqual(bytes(memoryview(region)[:4]), b"yyyy")


class Processes(unittest.TestCase):
    def test_a_forked_child_is_told(self):
        script = """
            import fairway, os, gc, warnings
            warnings.simplefilter('ignore')
            engine = fairway.Engine(name='parent')
            region = engine.allocate(4096, 'rw')
            child = os.fork()
            if child == 0:
                try:
                    engine.connect('127.0.0.1:1')
                except fairway.Forked as error:
                    print('child:', error, engine, flush=True)
                try:
                    region.deregister()
                except fairway.Forked:
                    print('child: region too', flush=True)
                with fairway.Engine() as own:
                    print('child:', own.connect(own.address) if False else 'own engine works', flush=True)
                del engine, region
                gc.collect()
                os._exit(0)
            os.waitpid(child, 0)
            with fairway.Engine() as other:
                other.connect(engine.address)
                print('parent: still here', flush=True)
            engine.close()
        """
        status, out = run(script)
        self.assertEqual(status, 0, out)
        self.assertIn("opened by the parent process", out)
        self.assertIn("region too", out)
        self.assertIn("own engine works", out)
        self.assertIn("parent: still here", out)

    def test_a_killed_peer_is_a_typed_error(self):
        script = """
            import fairway, sys, time
            engine = fairway.Engine(name='victim')
            region = engine.allocate(1 << 20, 'rw')
            engine.publish('memory', region)
            print(engine.address, flush=True)
            time.sleep(60)
        """
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        with fairway.Engine() as engine:
            peer = engine.connect(child.stdout.readline().strip())
            remote = peer.lookup("memory")
            engine.write(bytes(1 << 20), remote).wait()
            receive = peer.receive(1, bytearray(8))
            child.kill()
            with self.assertRaises((fairway.PeerDead, fairway.Closed)) as caught:
                receive.wait(60)
            self.assertIn("victim", caught.exception.peer)

    def test_bytes_between_processes(self):
        script = """
            import fairway, numpy as np, sys
            with fairway.Engine(name='target') as engine:
                inbox = np.zeros((256, 256), np.float64)
                region = engine.register(inbox, 'rw')
                engine.publish('inbox', region)
                print(engine.address, flush=True)
                note = engine.wait_notification(60)
                print(note.immediate, int(inbox.sum()), flush=True)
        """
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
        with fairway.Engine() as engine:
            remote = engine.connect(child.stdout.readline().strip()).lookup("inbox")
            columns = np.arange(512 * 512, dtype=np.float64).reshape(512, 512)[::2, 100:356]
            engine.write(columns, remote.array((256, 256), "float64"), notify=42).wait(60)
            out, _ = child.communicate(timeout=60)
        self.assertEqual(out.split(), ["42", str(int(columns.sum()))])

    def test_engines_left_open_end_with_the_process(self):
        status, out = run("import fairway; e = fairway.Engine(); r = e.allocate(4096); o = fairway.Engine(); p = o.connect(e.address); t = p.receive(1, bytearray(8))")
        self.assertEqual((status, out), (0, ""))

    def test_an_engine_that_does_not_close_at_the_end_keeps_no_other_open(self):
        status, out = run("""
            import fairway
            class Stubborn(fairway.Engine):
                def close(self): print("asked"); raise MemoryError("no")
            class Good(fairway.Engine):
                def close(self): print("closed"); super().close()
            kept = [Stubborn(), Good(), Stubborn(), Good()]
        """)
        self.assertEqual((out.count("asked"), out.count("closed")), (2, 2), out)


if __name__ == "__main__":
    unittest.main()
