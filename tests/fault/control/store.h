#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "plain_socket.h"
#include "process/control/live_engine.h"

// What the tests of directories in a store share.
namespace fairway::control {

inline Options named(const std::string& name, const std::string& directory) {
  Options options;
  options.name = name;
  options.directory = directory;
  options.job_key = "the job's key";
  return options;
}

// A server that answers the first bytes of every connection with `lie`, and nothing else.
class Liar {
 public:
  explicit Liar(std::string lie) : lie_(std::move(lie)), listener_(plain_listen(port_)), thread_([this] { serve(); }) {}
  ~Liar() {
    stop_.store(true);
    thread_.join();
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() {
    while (!stop_.load()) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10) != 1) continue;
      const sys::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char bytes[1024];
      ::recv(client.get(), bytes, sizeof bytes, 0);
      ::send(client.get(), lie_.data(), lie_.size(), MSG_NOSIGNAL);
      closed_within(client.get(), 50);
    }
  }

  const std::string lie_;
  std::uint16_t port_ = 0;
  sys::Fd listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fairway::control
