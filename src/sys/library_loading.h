#pragma once

namespace fairway::sys {

// Held while this thread loads libraries, or calls what may load some. fork() in another thread waits for its end:
// otherwise the child has a dynamic loader that was stopped in the middle of its work, and its own next dlopen() aborts
// it. May be nested. Any thread.
class LibraryLoading {
 public:
  LibraryLoading();
  ~LibraryLoading();
  LibraryLoading(const LibraryLoading&) = delete;
  LibraryLoading& operator=(const LibraryLoading&) = delete;
};

}  // namespace fairway::sys
