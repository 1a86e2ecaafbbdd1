"""Page numbers that cannot be obeyed are an exception that names the first of them, before anything moves."""

import unittest

import fairway
import numpy as np

from support import Pair


class PageNumbers(Pair):
    def refuses(self, kind, words, call, *arguments, **options):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **options)

    def test_pages_that_are_wrong(self):
        pages = np.zeros((16, 64), np.uint8)
        remote = self.offer(np.zeros((16, 64), np.uint8), "w")

        def write(local, far, page=64, **units):
            return self.alice.write_pages(pages, remote, np.array(local), np.array(far), page, **units)

        self.refuses(fairway.OutOfRange, r"remote_index\[1\] is -1, which is negative", write, [0, 1], [0, -1])
        self.refuses(fairway.OutOfRange, r"local_index\[0\] is 16", write, [16], [0])
        self.refuses(fairway.InvalidArgument, "page 3 in more than one place", write, [0, 1], [3, 3])
        self.refuses(fairway.InvalidArgument, "more than one place", write, [0, 1], [0, 63], remote_unit=1)
        write([0, 0], [1, 2]).wait()  # a source may repeat
        self.refuses(fairway.InvalidArgument, "2 pages and remote_index 1", write, [0, 1], [0])
        self.refuses(fairway.InvalidArgument, "0 bytes|no pages", write, [], [])
        self.refuses(fairway.InvalidArgument, "at least 1", write, [0], [0], 0)
        self.refuses(fairway.InvalidArgument, "integers", write, [0.5], [0])
        self.refuses(fairway.InvalidArgument, "dimensions", write, [[0]], [0])
        self.refuses(fairway.OutOfRange, "", write, [1 << 62], [0], local_unit=1 << 62)

    def test_pages_that_are_named_twice_among_many(self):
        # Few of many pages, nearly all of them, and few of more than are remembered by a bit each.
        for size, count in ((1 << 16, 300), (1 << 16, 60000), (100 << 20, 300)):
            inbox = np.zeros(size, np.uint8)
            remote = self.offer(inbox, "rw")
            sent = np.random.default_rng(3).integers(1, 255, count, dtype=np.uint8)
            here = np.arange(count)
            there = np.random.default_rng(4).permutation(1 << 16)[:count] * (size >> 16) + (size >> 16) - 1
            for first, last in ((0, count - 1), (count // 2, count // 2 + 1), (1, 0)):
                with self.subTest(size=size, count=count, first=first):
                    wrong = there.copy()
                    wrong[last] = wrong[first]
                    named = f"remote_index names page {there[first]} in more than one place"
                    self.refuses(fairway.InvalidArgument, named, self.alice.write_pages, sent, remote, here, wrong, 1)
                    wrong[last] = size
                    self.refuses(fairway.OutOfRange, rf"remote_index\[{last}\] is {size}: ", self.alice.write_pages, sent, remote, here, wrong, 1)
                    wrong[last] = -1
                    self.refuses(fairway.OutOfRange, rf"remote_index\[{last}\] is -1, ", self.alice.write_pages, sent, remote, here, wrong, 1)
                    twice = here.copy()
                    twice[last] = twice[first]
                    named = f"local_index names page {first} in more than one place"
                    self.refuses(fairway.InvalidArgument, named, self.alice.read_pages, sent.copy(), remote, twice, there, 1)
                    self.assertEqual(np.count_nonzero(inbox), 0)
                    self.alice.write_pages(sent, remote, here, there, 1).wait()
                    np.testing.assert_array_equal(inbox[there], sent)
                    self.assertEqual(np.count_nonzero(inbox), count)
                    inbox[there] = 0

    def test_indexes_that_change_meanwhile_stay_inside(self):
        guard = np.zeros((3, 64, 4096), np.uint8)
        remote = self.offer(guard[1], "w")
        pages = np.ones((64, 4096), np.uint8)
        for seed in range(20):
            index = np.arange(64)
            transfer = self.alice.write_pages(pages, remote, np.arange(64), index, 4096)
            index[:] = np.random.default_rng(seed).integers(-(1 << 62), 1 << 62, 64)
            try:
                transfer.wait()
            except fairway.OutOfRange:
                pass
        self.assertEqual(guard[0].sum() + guard[2].sum(), 0)


if __name__ == "__main__":
    unittest.main()
