// The tcp path against a raw socket loop that does the same work, in turns, between two processes over 127.0.0.1, both
// sides polling: a write until its acknowledgement, a read until its bytes. Prints medians and the ratio of the two.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/fairway.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array<std::uint64_t, 6> kSizes{8, 4096, 65536, 1 << 20, 16 << 20, 256 << 20};
constexpr std::uint64_t kLargest = 256 << 20;
constexpr std::uint64_t kReadBit = std::uint64_t{1} << 63;

template <class T>
T must(fairway::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench: %s\n", result.status().to_string().c_str());
  std::exit(1);
}

// A child that runs `body` with its end of a pipe and dies with this object.
class Child {
 public:
  explicit Child(const std::function<void(int)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::exit(1);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(ends[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string line;  // the first that it wrote

 private:
  pid_t pid_ = -1;
};

// Nonblocking calls in a loop, as a polling worker makes them. False when the other end is gone.
bool move_all(int socket, void* at, std::uint64_t length, bool out) {
  for (auto* bytes = static_cast<std::byte*>(at); length > 0;) {
    const ssize_t moved =
        out ? ::send(socket, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) : ::recv(socket, bytes, length, MSG_DONTWAIT);
    if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (moved < 0) continue;
    bytes += moved;
    length -= static_cast<std::uint64_t>(moved);
  }
  return true;
}

using Samples = std::map<std::pair<std::uint64_t, bool>, std::vector<double>>;

void sample(Samples& into, const std::function<void(std::uint64_t, bool)>& operation) {
  for (const std::uint64_t size : kSizes)
    for (const bool read : {false, true}) {
      const int rounds = size >= 16 << 20 ? 5 : size >= 1 << 20 ? 60 : 1500;
      operation(size, read);
      for (int i = 0; i < rounds; ++i) {
        const auto start = Clock::now();
        operation(size, read);
        into[{size, read}].push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
    }
}

void raw(Samples& into, std::byte* memory) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), length);
  ::listen(listener, 1);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const int one = 1;
  const Child server([&](int ready) {
    std::vector<std::byte> target(kLargest);
    (void)!::write(ready, "\n", 1);
    const int socket = ::accept(listener, nullptr, nullptr);
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    for (std::uint64_t order = 0; move_all(socket, &order, 8, false);) {
      const bool read = (order & kReadBit) != 0;
      if (!move_all(socket, target.data(), order & ~kReadBit, read)) return;
      if (!read && !move_all(socket, &order, 8, true)) return;
    }
  });
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ::connect(socket, reinterpret_cast<sockaddr*>(&address), length);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  sample(into, [&](std::uint64_t size, bool read) {
    std::uint64_t order = size | (read ? kReadBit : 0);
    move_all(socket, &order, 8, true);
    move_all(socket, memory, size, !read);
    if (!read) move_all(socket, &order, 8, false);
  });
  ::close(socket);
  ::close(listener);
}

fairway::EngineOptions options() {
  fairway::EngineOptions options;
  options.progress = fairway::Progress::caller;
  options.transports = {"tcp"};
  return options;
}

void fairway_path(Samples& into, std::byte* memory) {
  const Child server([](int ready) {
    auto engine = must(fairway::Engine::open(options()));
    std::vector<std::byte> bytes(kLargest);  // ordinary memory, as the raw loop has it
    const auto target = must(engine.register_memory(bytes.data(), kLargest, fairway::Access::all));
    (void)engine.publish("target", target);
    const std::string line = engine.address() + "\n";
    (void)!::write(ready, line.data(), line.size());
    for (std::array<fairway::Completion, 1> none;;) (void)engine.poll(none);
  });
  auto engine = must(fairway::Engine::open(options()));
  const auto mine = must(engine.register_memory(memory, kLargest, fairway::Access::none));
  const auto peer = must(engine.connect(server.line));
  const auto target = must(engine.lookup(peer, "target"));
  sample(into, [&](std::uint64_t size, bool read) {
    fairway::RequestOptions wanted;
    wanted.deliver = fairway::Deliver::to_poll;
    const fairway::Extent extent{{mine.id, 0, size}, {target.id, 0}};
    must(read ? engine.read(peer, extent, wanted) : engine.write(peer, extent, wanted));
    std::array<fairway::Completion, 1> done;
    while (engine.poll(done) == 0) {
    }
    if (!done[0].status) must(fairway::Result<int>(done[0].status));
  });
}

double median(std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace

int main() {
  std::vector<std::byte> memory(kLargest, std::byte{1});
  Samples ours, theirs;
  for (int turn = 0; turn < 3; ++turn) {
    raw(theirs, memory.data());
    fairway_path(ours, memory.data());
  }
  std::printf("%10s %6s %12s %12s %9s %9s\n", "bytes", "", "raw us", "fairway us", "GB/s", "raw / it");
  for (auto& [key, samples] : ours) {
    const double it = median(samples);
    const double roof = median(theirs[key]);
    std::printf("%10llu %6s %12.1f %12.1f %9.2f %9.2f\n", static_cast<unsigned long long>(key.first),
                key.second ? "read" : "write", roof, it, static_cast<double>(key.first) / it / 1e3, roof / it);
  }
  return 0;
}
