#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/cores.h"
#include "bench/gpu.h"
#include "bench/paths/vectors.h"
#include "bench/pattern.h"

// The same work without Fairway, with a helper process: memcpy and a flag in shared memory, process_vm_readv and writev
// with that flag, or a loop over one socket. The helper sleeps between batches; in one each process has a core.
namespace fairway::tool::bench {
namespace {

struct Shared {                                     // between the two processes
  alignas(64) std::atomic<std::uint64_t> there{0};  // rounds started by the measuring process
  alignas(64) std::atomic<std::uint64_t> back{0};   // and answered
};
struct Job {
  std::uint64_t operation = 0, size = 0, rounds = 0, places = 1, pages = 1;
};

std::byte* map(std::uint64_t size, int flags) {
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

// Nonblocking calls in a loop, as of a polling worker. False if the other end is gone.
bool move_all(int socket, std::byte* at, std::uint64_t length, bool out) {
  while (length > 0) {
    const ssize_t moved =
        out ? ::send(socket, at, length, MSG_DONTWAIT | MSG_NOSIGNAL) : ::recv(socket, at, length, MSG_DONTWAIT);
    if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (moved < 0) continue;
    at += moved;
    length -= static_cast<std::uint64_t>(moved);
  }
  return true;
}

class RoofPath final : public Mover {
 public:
  explicit RoofPath(Roof roof) : roof_(roof) {}
  ~RoofPath() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {orders_[1], answers_[0], socket_})
      if (fd >= 0) ::close(fd);
    for (std::byte* at : {here_, there_})
      if (at != nullptr) ::munmap(at, most_);
    if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
  }

  bool open(std::uint64_t most) {
    most_ = most;
    here_ = map(most, MAP_PRIVATE);
    there_ = map(most, roof_ == Roof::copies ? MAP_SHARED : MAP_PRIVATE);
    auto* shared = map(sizeof(Shared), MAP_SHARED);
    if (here_ == nullptr || there_ == nullptr || shared == nullptr) return false;
    shared_ = new (shared) Shared;
    std::memset(here_, 1, most);
    if (roof_ == Roof::copies) std::memset(there_, 1, most);
    if (::pipe(orders_) != 0 || ::pipe(answers_) != 0) return false;
    int listener = -1;
    sockaddr_in address{};
    if (roof_ == Roof::sockets) {
      listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener, 1) != 0 ||
          ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
        return false;
    }
    const int one = 1;
    cores_ = two_cores();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (cores_) held_.hold(cores_->second);
      if (roof_ != Roof::copies) std::memset(there_, 1, most);  // its own pages from here on
      if (roof_ == Roof::sockets) {
        socket_ = ::accept(listener, nullptr, nullptr);
        ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      }
      help();
      ::_exit(0);
    }
    ::close(std::exchange(orders_[0], -1));
    ::close(std::exchange(answers_[1], -1));
    if (pid_ < 0) return false;
    if (roof_ == Roof::sockets) {
      socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
      ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      ::close(listener);
    }
    return true;
  }

  bool does(const Batch& batch) const override {
    if (batch.depth != 1) return false;
    if (batch.pages != 0) return roof_ != Roof::sockets && moves(batch.operation);
    return roof_ != Roof::attach || moves(batch.operation);
  }

  Status begin(const Batch& batch) override {
    // As on the measured path: each side has just written its memory.
    fill(here_, batch.size * batch.places * std::max<std::uint64_t>(1, batch.pages), batch.seed);
    shared_->there.store(0);
    shared_->back.store(0);
    const Job job{static_cast<std::uint64_t>(batch.operation), batch.size, batch.rounds, batch.places,
                  std::max<std::uint64_t>(1, batch.pages)};
    char ready = 0;
    if (::write(orders_[1], &job, sizeof job) != sizeof job || ::read(answers_[0], &ready, 1) != 1)
      return {ErrorCode::system_error, "the helper process of the roof has ended"};
    if (cores_) held_.hold(cores_->first);
    return {};
  }

  Status once(const Batch& batch, std::uint64_t round) override {
    const std::uint64_t at = batch.place(round) * batch.size * std::max<std::uint64_t>(1, batch.pages);
    const std::uint64_t size = batch.size;
    if (roof_ == Roof::sockets) return over_socket(batch.operation, at, size);
    const bool read = batch.operation == Operation::read;
    const std::uint64_t pages = std::max<std::uint64_t>(1, batch.pages);
    if (index_.size() != pages) index_ = shuffled(pages);
    for (std::uint64_t page = 0; page < pages;) {
      iovec ours[16], theirs[16];
      unsigned count = 0;
      for (; count < 16 && page < pages; ++count, ++page) {
        ours[count] = {here_ + at + index_[page] * size, size};
        theirs[count] = {there_ + at + index_[page] * size, size};
      }
      if (roof_ == Roof::copies) {
        for (unsigned i = 0; i < count; ++i)
          std::memcpy(read ? ours[i].iov_base : theirs[i].iov_base, read ? theirs[i].iov_base : ours[i].iov_base, size);
        continue;
      }
      const auto call = [this, read](std::span<iovec> here, std::span<iovec> there) {
        return read ? ::process_vm_readv(pid_, here.data(), here.size(), there.data(), there.size(), 0)
                    : ::process_vm_writev(pid_, here.data(), here.size(), there.data(), there.size(), 0);
      };
      if (move_whole(std::span(ours, count), std::span(theirs, count), call) < 0)
        return {ErrorCode::system_error, std::string("process_vm_writev: ") + std::strerror(errno)};
    }
    if (moves(batch.operation)) return {};
    shared_->there.store(round + 1, std::memory_order_release);
    while (shared_->back.load(std::memory_order_acquire) != round + 1) {
    }
    return {};
  }

  Result<Cost> end(const Batch&) override {
    held_.let_go();
    return Cost();
  }

 private:
  static bool moves(Operation operation) { return operation == Operation::write || operation == Operation::read; }

  Status over_socket(Operation operation, std::uint64_t at, std::uint64_t size) {
    std::uint64_t word = size;
    auto* bytes = reinterpret_cast<std::byte*>(&word);
    bool ok = true;
    if (operation == Operation::read) {
      ok = move_all(socket_, bytes, 8, true) && move_all(socket_, here_ + at, size, false);
    } else {
      ok = move_all(socket_, here_ + at, size, true) &&
           (operation == Operation::write ? move_all(socket_, bytes, 8, false)
                                          : move_all(socket_, here_ + at, size, false));
    }
    return ok ? Status() : Status(ErrorCode::system_error, "the helper process of the roof has ended");
  }

  [[noreturn]] void help() {
    Job job;
    while (::read(orders_[0], &job, sizeof job) == sizeof job) {
      const auto operation = static_cast<Operation>(job.operation);
      fill(there_, job.size * job.places * job.pages, 1);
      if (::write(answers_[1], "r", 1) != 1) break;
      if (roof_ != Roof::sockets && moves(operation)) continue;
      for (std::uint64_t round = 0; round < job.rounds; ++round) {
        const std::uint64_t at = round % job.places * job.size;
        if (roof_ == Roof::sockets) {
          std::uint64_t word = 0;
          auto* bytes = reinterpret_cast<std::byte*>(&word);
          const bool ok = operation == Operation::read
                              ? move_all(socket_, bytes, 8, false) && move_all(socket_, there_ + at, job.size, true)
                              : move_all(socket_, there_ + at, job.size, false) &&
                                    (operation == Operation::write ? move_all(socket_, bytes, 8, true)
                                                                   : move_all(socket_, there_ + at, job.size, true));
          if (!ok) ::_exit(1);
          continue;
        }
        while (shared_->there.load(std::memory_order_acquire) != round + 1) {
        }
        if (roof_ == Roof::copies)  // the answer is written like the question
          std::memcpy(here_ + at, there_ + at, job.size);
        shared_->back.store(round + 1, std::memory_order_release);
      }
    }
    ::_exit(0);
  }

  const Roof roof_;
  std::optional<std::pair<int, int>> cores_;
  HeldCore held_;
  std::uint64_t most_ = 0;
  std::byte* here_ = nullptr;
  std::byte* there_ = nullptr;
  Shared* shared_ = nullptr;
  int orders_[2] = {-1, -1}, answers_[2] = {-1, -1};
  std::vector<std::uint64_t> index_;
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace

std::unique_ptr<Mover> open_roof(Roof roof, const std::string& from, const std::string& to, std::uint64_t most) {
  if (roof == Roof::none || roof == Roof::fabric) return nullptr;
  if (roof == Roof::device) return open_copy_roof(from, to, most);
  auto path = std::make_unique<RoofPath>(roof);
  if (!path->open(most)) return nullptr;
  return path;
}

}  // namespace fairway::tool::bench
