#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/control/plain_socket.h"

namespace fairway::control {

// A process of the system's etcd, alone in its cluster, with its data in a folder of its own.
class EtcdServer {
 public:
  static bool available() { return std::system("command -v etcd > /dev/null 2>&1") == 0; }  // NOLINT(cert-env33-c)
  EtcdServer() {
    plain_listen(port_).reset();
    plain_listen(peer_port_).reset();
    char folder[] = "/tmp/fairway-etcd-XXXXXX";
    data_ = ::mkdtemp(folder);
    start();
  }
  ~EtcdServer() {
    kill();
    std::filesystem::remove_all(data_);
  }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  void start() {
    const std::string clients = "http://127.0.0.1:" + std::to_string(port_);
    const std::string peers = "http://127.0.0.1:" + std::to_string(peer_port_);
    const std::string cluster = "default=" + peers;
    pid_ = ::fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      ::setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 0);
      ::execlp("etcd", "etcd", "--data-dir", data_.c_str(), "--listen-client-urls", clients.c_str(),
               "--advertise-client-urls", clients.c_str(), "--listen-peer-urls", peers.c_str(),
               "--initial-advertise-peer-urls", peers.c_str(), "--initial-cluster", cluster.c_str(), "--bcrypt-cost",
               "4", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    for (int i = 0; i < 1000 && post("/v3/kv/range", R"({"key":"YQ=="})").find("header") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void forget_everything() const {
    for (const auto& each : std::filesystem::directory_iterator(data_)) std::filesystem::remove_all(each);
  }
  std::string post(const std::string& path, const std::string& body, const std::string& header = "") const {
    auto socket = plain_connect(port_);
    if (!socket) return {};
    const std::string text = "POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header +
                             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    std::string answer;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(got));
    return answer;
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return "etcd://" + address() + "/job7/"; }

 private:
  std::uint16_t port_ = 0, peer_port_ = 0;
  std::string data_;
  pid_t pid_ = -1;
};

}  // namespace fairway::control
