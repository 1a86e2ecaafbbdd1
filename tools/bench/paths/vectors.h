#pragma once

#include <cstddef>
#include <span>

#include <sys/uio.h>

namespace fairway::tool::bench {

// Calls `move(ours, theirs)`, process_vm_readv's kind, until all bytes of the lists have moved: one call moves at most
// 2 GiB less a page, and says how much it did. Both lists have the same lengths, and are used up. 0 or the failed
// call's result.
template <class Move>
ssize_t move_whole(std::span<iovec> ours, std::span<iovec> theirs, Move move) {
  while (!ours.empty()) {
    if (ours.front().iov_len == 0) {
      ours = ours.subspan(1), theirs = theirs.subspan(1);
      continue;
    }
    const ssize_t moved = move(ours, theirs);
    if (moved < 0) return moved;
    for (auto left = static_cast<std::size_t>(moved); left > 0;) {
      iovec &here = ours.front(), &there = theirs.front();
      const std::size_t part = here.iov_len < left ? here.iov_len : left;
      here = {static_cast<std::byte*>(here.iov_base) + part, here.iov_len - part};
      there = {static_cast<std::byte*>(there.iov_base) + part, there.iov_len - part};
      left -= part;
      if (here.iov_len == 0) ours = ours.subspan(1), theirs = theirs.subspan(1);
    }
  }
  return 0;
}

}  // namespace fairway::tool::bench
