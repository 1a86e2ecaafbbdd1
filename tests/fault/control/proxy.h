#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plain_socket.h"

namespace fairway::control {

// A bad network between two engines. It listens on its own port, forwards everything to its target, and sometimes flips
// a bit or cuts a connection. Its thread owns the connections; any thread may set the switches.
class Proxy {
 public:
  explicit Proxy(std::uint64_t seed) : random_(seed), listener_(plain_listen(port_)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stop_.store(true);
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void set_target(const std::string& address) { target_.store(port_of(address)); }

  std::atomic<std::uint32_t> flip_every{0};  // bytes between two bit flips, on average; 0: never
  std::atomic<std::uint32_t> cut_every{0};
  std::atomic<std::uint64_t> flips{0};
  std::atomic<std::uint64_t> cuts{0};

 private:
  struct Pair {
    sys::Fd ends[2];
  };

  bool happens(std::uint32_t every, std::size_t bytes) { return every != 0 && random_() % every < bytes; }

  void run() {
    std::vector<Pair> pairs;
    while (!stop_.load()) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
      for (auto& pair : pairs)
        for (auto& end : pair.ends) entries.push_back({end.get(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), 20) <= 0) continue;
      std::vector<std::size_t> gone;
      for (std::size_t i = 0; i < pairs.size(); ++i)
        for (std::size_t end = 0; end < 2; ++end)
          if (entries[1 + 2 * i + end].revents != 0 && !pass(pairs[i], end)) {
            gone.push_back(i);
            break;
          }
      for (auto at = gone.rbegin(); at != gone.rend(); ++at)
        pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(*at));
      if (entries[0].revents != 0) {
        sys::Fd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        sys::Fd far = plain_connect(target_.load());
        if (near && far) pairs.push_back({{std::move(near), std::move(far)}});
      }
    }
  }
  bool pass(Pair& pair, std::size_t from) {
    char bytes[8192];
    const ssize_t got = ::recv(pair.ends[from].get(), bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    const auto size = static_cast<std::size_t>(got);
    if (happens(cut_every.load(), size)) {
      ++cuts;
      return false;
    }
    if (happens(flip_every.load(), size)) {
      bytes[random_() % size] ^= static_cast<char>(1U << random_() % 8);
      ++flips;
    }
    return ::send(pair.ends[1 - from].get(), bytes, size, MSG_NOSIGNAL) == got;
  }

  std::mt19937_64 random_;
  std::uint16_t port_ = 0;
  sys::Fd listener_;
  std::atomic<std::uint16_t> target_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fairway::control
