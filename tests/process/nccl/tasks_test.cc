#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_net/background_tasks.h"
#include "nccl_net/network.h"

// What the plugin does in threads of its own, so that NCCL's never wait, and so that none waits for the dead of
// another.
namespace fairway::nccl {
namespace {

template <class Done>
bool until(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(NcclTasks, ThatWaitHoldUpTheirOwnKeyAlone) {
  constexpr std::size_t kWaiting = 200;
  std::atomic<bool> open{false};
  std::atomic<std::size_t> waiting{0}, behind{0}, others{0};
  BackgroundTasks tasks;
  for (std::size_t key = 0; key < kWaiting; ++key) {
    tasks.add(key, [&] {
      ++waiting;
      (void)until([&] { return open.load(); });
    });
    tasks.add(key, [&] { ++behind; });
  }
  ASSERT_TRUE(until([&] { return waiting == kWaiting; }));
  for (std::size_t i = 0; i < 100; ++i) tasks.add(kWaiting + i % 2, [&] { ++others; });
  EXPECT_TRUE(until([&] { return others == 100; }));
  EXPECT_EQ(behind, 0U);
  open = true;
  EXPECT_TRUE(until([&] { return behind == kWaiting; }));
}

TEST(NcclTasks, OfOneKeyRunInTheirOrder) {
  constexpr int kCount = 1000;
  std::vector<int> order;
  std::atomic<int> done{0};
  BackgroundTasks tasks;
  for (int i = 0; i < kCount; ++i) {
    tasks.add(7, [&, i] {
      order.push_back(i);  // one at a time
      ++done;
    });
    tasks.add(static_cast<std::size_t>(i) + 8, [] {});
  }
  ASSERT_TRUE(until([&] { return done == kCount; }));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// Takes connections and never says a word, as a host does that is frozen.
class Silent {
 public:
  Silent() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Silent() { ::close(socket_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

TEST(NcclDials, ToTheDeadHoldUpNoneToTheLiving) {
  const std::map<std::string, std::string> variables{
      {"FAIRWAY_TRANSPORTS", "tcp"}, {"FAIRWAY_GPU_MEMORY", "off"}, {"FAIRWAY_ENGINES", "1"}};
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  Log log;
  auto network = Network::open(environment, log);
  ASSERT_TRUE(network) << network.status().to_string();
  Handle living;
  const auto listener = (*network)->listen(0, living);
  ASSERT_TRUE(listener) << listener.status().to_string();
  const std::vector<Silent> silent(8);
  std::vector<Handle> dead;
  for (const Silent& each : silent) {
    for (int channel = 0; channel < 4; ++channel) {
      Handle& handle = dead.emplace_back(living);
      handle.process ^= 1;
      std::memset(handle.address, 0, sizeof handle.address);
      std::memcpy(handle.address, each.address().data(), each.address().size());
      const auto begun = (*network)->connect(0, handle);
      ASSERT_TRUE(begun && *begun == nullptr);
    }
  }
  std::shared_ptr<Sender> sender;  // within 20 s; each of the others takes 30
  ASSERT_TRUE(until([&] {
    const auto made = (*network)->connect(0, living);
    EXPECT_TRUE(made) << made.status().to_string();
    return !made || (sender = *made) != nullptr;
  }));
  std::shared_ptr<Receiver> receiver;
  ASSERT_TRUE(until([&] { return (receiver = (*listener)->accept()) != nullptr; }));
  std::array<std::byte, 64> out{}, in{};
  out[63] = std::byte{9};
  const auto from = sender->endpoint().register_memory(out.data(), out.size(), sender->access());
  const auto into = receiver->endpoint().register_memory(in.data(), in.size(), receiver->access());
  ASSERT_TRUE(from && into);
  void *data = in.data(), *memory = *into;
  const std::size_t size = in.size();
  const int tag = 1;
  Request *receiving = nullptr, *sending = nullptr;
  int done = 0;
  ASSERT_TRUE(until([&] {
    (void)receiver->receive(1, &data, &size, &tag, &memory, &receiving);
    return receiving != nullptr;
  }));
  ASSERT_TRUE(until([&] {
    (void)sender->send(out.data(), size, tag, **from, &sending);
    return sending != nullptr;
  })) << "to memory that it looks up first";
  ASSERT_TRUE(until([&] { return sender->test(*sending, &done, nullptr) == abi::kSuccess && done != 0; }));
  ASSERT_TRUE(until([&] { return receiver->test(*receiving, &done, nullptr) == abi::kSuccess && done != 0; }));
  EXPECT_EQ(out, in);
  EXPECT_TRUE(sender->endpoint().deregister(*from));
  EXPECT_TRUE(receiver->endpoint().deregister(*into));
  EXPECT_EQ(sender->close(), abi::kSuccess);
  EXPECT_EQ(receiver->close(), abi::kSuccess);
}

}  // namespace
}  // namespace fairway::nccl
