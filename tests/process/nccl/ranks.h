#pragma once

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "process/control/child_process.h"
#include "process/nccl/table.h"

// Processes that play NCCL's ranks, and what they need of a bootstrap: handles and barriers in shared memory.
namespace fairway::nccl {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostChannels = 128;  // each way between two ranks: 64 channels' rings and trees

struct Board {
  std::atomic<int> arrived[64];                 // by barrier
  HandleBytes handles[kMostRanks][kMostRanks];  // [listener][who connects]
  std::atomic<bool> there[kMostRanks][kMostRanks];
  HandleBytes channels[2][kMostChannels];
};

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the plugin has said to NCCL's logger, of this process, from any of its threads.
struct Words {
  std::mutex mutex;  // guards text
  std::string text;
};
inline Words& words() {
  static Words all;
  return all;
}
inline std::string said() {
  const std::lock_guard lock(words().mutex);
  return words().text;
}
// The same within a while.
inline bool says(const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (said().find(what) == std::string::npos) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}
inline void logger(abi::LogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(words().mutex);
  words().text += (level == abi::kWarn ? "W " : "I ") + std::string(line) + "\n";
}

// One rank's side of the plugin; every wait has an end.
class Rank {
 public:
  Rank(Board& shared, int number, int count, int version)
      : board(shared), rank(number), ranks(count), table(open_table(version)) {
    must(table->init(logger), "init");
    if (table->devices() < 1) throw Failure("no device");
    must(table->properties(0, facts), "getProperties");
  }

  void must(abi::Code code, const char* what) const {
    if (code != abi::kSuccess) throw Failure(std::string(what) + " gave " + std::to_string(code) + "\n" + said());
  }
  template <class Done>
  void until(const char* what, Done done) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    for (unsigned tries = 0; !done(); ++tries) {
      if (std::chrono::steady_clock::now() > end) throw Failure(std::string("no end of ") + what + "\n" + said());
      // Lanes of all ranks poll: for long, they would take the cores from the threads that they wait for.
      tries < 1000 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  void barrier(int number) {
    ++board.arrived[number];
    until("a barrier", [&] { return board.arrived[number].load() >= ranks; });
  }
  // A connection from this rank to `next` and one from `previous` to it.
  void meet(int next, int previous) { meet(next, previous, rank); }
  // The handles are at `mine_at` of this rank's row of the board, and at `theirs_at` of the next one's.
  void meet(int next, int mine_at, int theirs_at) {
    void* listener = nullptr;
    HandleBytes mine{};
    must(table->listen(mine, &listener), "listen");
    board.handles[rank][mine_at] = mine;
    board.there[rank][mine_at] = true;
    until("a handle", [&] { return board.there[next][theirs_at].load(); });
    HandleBytes theirs = board.handles[next][theirs_at];
    until("connecting", [&] {
      if (sender == nullptr) must(table->connect(theirs, &sender), "connect");
      if (receiver == nullptr) must(table->accept(listener, &receiver), "accept");
      return sender != nullptr && receiver != nullptr;
    });
    must(table->close_listener(listener), "closeListen");
  }
  void* register_memory(void* connection, void* data, std::size_t size, int type = abi::kPointerHost) {
    void* memory = nullptr;
    must(table->register_memory(connection, data, size, type, &memory), "regMr");
    return memory;
  }
  void* send(void* data, std::size_t size, int tag, void* memory) {
    void* request = nullptr;
    until("isend", [&] {
      must(table->send(sender, data, size, tag, memory, &request), "isend");
      return request != nullptr;
    });
    return request;
  }
  void* receive(void* data, std::size_t size, int tag, void* memory) {
    void* request = nullptr;
    until("irecv", [&] {
      must(table->receive(receiver, 1, &data, &size, &tag, &memory, &request), "irecv");
      return request != nullptr;
    });
    return request;
  }
  // Until it is done: its size.
  int finish(void* request) {
    int done = 0, sizes[abi::kMostReceives] = {};
    until("test", [&] {
      must(table->test(request, &done, sizes), "test");
      return done != 0;
    });
    return sizes[0];
  }
  void leave() {
    part();
    must(table->finalize(), "finalize");
  }
  void part() {
    if (sender != nullptr) must(table->close_sender(sender), "closeSend");
    if (receiver != nullptr) must(table->close_receiver(receiver), "closeRecv");
    sender = receiver = nullptr;
  }

  Board& board;
  const int rank, ranks;
  std::unique_ptr<Table> table;
  Facts facts;
  void* sender = nullptr;
  void* receiver = nullptr;
};

// Runs `body` as each rank of `count` processes. What went wrong, one line for each that did not end well.
class Ranks {
 public:
  Ranks(int count, const std::function<void(Board&, int rank)>& body) {
    board_ =
        static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int rank = 0; rank < count; ++rank)
      children_.push_back(std::make_unique<control::ChildProcess>([&, rank](control::ChildProcess::Line& line) {
        try {
          body(*board_, rank);
          line.write("ok");
        } catch (const std::exception& error) {
          std::string text = error.what();
          for (char& letter : text)
            if (letter == '\n') letter = '|';
          line.write(text);
        }
      }));
  }
  ~Ranks() {
    children_.clear();
    ::munmap(board_, sizeof(Board));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void kill(int rank) { children_[static_cast<std::size_t>(rank)]->kill(); }
  void stop(int rank, int signal) { children_[static_cast<std::size_t>(rank)]->signal(signal); }
  // Of one rank: "ok", or what went wrong; empty: it died.
  std::string outcome(int rank) { return children_[static_cast<std::size_t>(rank)]->read(); }
  std::string outcomes() {
    std::string all;
    for (std::size_t rank = 0; rank < children_.size(); ++rank)
      if (const std::string one = children_[rank]->read(); one != "ok")
        all += "rank " + std::to_string(rank) + ": " + (one.empty() ? "died" : one) + "\n";
    return all;
  }
  Board& board() { return *board_; }

 private:
  Board* board_ = nullptr;
  std::vector<std::unique_ptr<control::ChildProcess>> children_;
};

}  // namespace fairway::nccl
