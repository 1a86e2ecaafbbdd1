#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/open.h"
#include "nccl_net/network.h"
#include "support/alone.h"
#include "support/cuda/device_memory.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

// What the plugin makes of GPU memory between hosts: two of its endpoints on NICs and GPUs that stand in for real ones.
namespace fairway::nccl {
namespace {

namespace nic = support::nic;
constexpr std::size_t kNicBytes = 1u << 20;

class NcclNics : public testing::Test {
 protected:
  NcclNics() {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
    gpus_ = std::make_unique<support::DeviceMemory>();
    nic::settings() = {};
    library_ = nic::library();
  }
  ~NcclNics() override {
    nic::settings() = {};
    ::unsetenv("FAIRWAY_CUDA_DRIVER");
  }
  std::shared_ptr<Endpoint> on(const char* device) {
    const auto settings = read_settings([](const char*) -> const char* { return nullptr; });
    const auto factory = [&](transport::RegionTable& regions, Runtime& runtime) {
      transport::VerbsOptions options;
      options.rdma.devices = {device};
      options.read_back = true;  // as on hardware
      options.library = library_;
      return support::alone(transport::open_verbs_transport(regions, runtime, options));
    };
    auto engine = EngineAccess::open(settings->engine, runtime_, factory);
    EXPECT_TRUE(engine) << engine.status().to_string();
    return std::make_shared<Endpoint>(std::move(*engine), *settings, log_, background_, std::make_shared<SendCount>(0));
  }
  template <class Done>
  static bool until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done())
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  }

  static void meet(const std::shared_ptr<Endpoint>& a, const std::shared_ptr<Endpoint>& b,
                   std::shared_ptr<Sender>& sender, std::shared_ptr<Receiver>& receiver) {
    const auto listener = std::make_shared<Listener>(b);
    b->add(listener);
    const auto peer = a->engine().connect(b->engine().address());
    ASSERT_TRUE(peer) << peer.status().to_string();
    sender = std::make_shared<Sender>(a, *peer, PortId{});
    a->add(sender);
    Message hello;
    hello.kind = Message::Kind::hello;
    hello.from = sender->id();
    a->post_until_accepted(*peer, listener->id(), hello);
    ASSERT_TRUE(until([&] { return (receiver = listener->accept()) != nullptr; }));
    listener->close();
  }
  // One message, whole.
  static void move(Sender& sender, Memory& from, Receiver& receiver, Memory& into) {
    void *data = into.region.address, *memory = &into;
    const std::size_t size = into.region.size_bytes;
    const int tag = 3;
    Request *receiving = nullptr, *sending = nullptr;
    int done = 0;
    abi::Code code = abi::kSuccess;
    ASSERT_TRUE(until([&] {
      code = receiver.receive(1, &data, &size, &tag, &memory, &receiving);
      return code != abi::kSuccess || receiving != nullptr;
    }));
    ASSERT_EQ(code, abi::kSuccess);
    ASSERT_TRUE(until([&] {
      code = sender.send(from.region.address, from.region.size_bytes, tag, from, &sending);
      return code != abi::kSuccess || sending != nullptr;
    }));
    ASSERT_EQ(code, abi::kSuccess);
    ASSERT_TRUE(until([&] { return (code = sender.test(*sending, &done, nullptr)) != abi::kSuccess || done != 0; }));
    ASSERT_EQ(code, abi::kSuccess);
    ASSERT_TRUE(
        until([&] { return (code = receiver.test(*receiving, &done, nullptr)) != abi::kSuccess || done != 0; }));
    ASSERT_EQ(code, abi::kSuccess);
  }

  std::unique_ptr<support::DeviceMemory> gpus_;
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::shared_ptr<const transport::verbs::Library> library_;
  Log log_;
  BackgroundTasks background_;
};

TEST_F(NcclNics, MoveGpuMemoryWithoutTheDriversCopies) {
  const auto a = on("nic0"), b = on("nic1");
  std::shared_ptr<Sender> sender;
  std::shared_ptr<Receiver> receiver;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, sender, receiver));
  std::byte *out = gpus_->allocate(kNicBytes, 0), *in = gpus_->allocate(kNicBytes, 1);
  const std::uint64_t before = nic::counts().by_dmabuf;
  const auto from = a->register_memory(out, kNicBytes, sender->access());
  const auto into = b->register_memory(in, kNicBytes, receiver->access());
  ASSERT_TRUE(from) << from.status().to_string();
  ASSERT_TRUE(into) << into.status().to_string();
  EXPECT_GE(nic::counts().by_dmabuf, before + 2);  // and a word of each GPU's for the NIC to read
  std::vector<std::byte> sent(kNicBytes), came(kNicBytes);
  for (const std::size_t size : {kNicBytes, std::size_t{8}, std::size_t{70000}}) {
    for (std::size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7 + size);
    gpus_->write(out, std::span(sent).first(size), 0);
    void *data = in, *memory = *into;
    const int tag = 3;
    Request *receiving = nullptr, *sending = nullptr;
    int done = 0, bytes = 0;
    ASSERT_TRUE(until([&] {
      return receiver->receive(1, &data, &kNicBytes, &tag, &memory, &receiving) != abi::kSuccess ||
             receiving != nullptr;
    }));
    ASSERT_TRUE(
        until([&] { return sender->send(out, size, tag, **from, &sending) != abi::kSuccess || sending != nullptr; }));
    ASSERT_TRUE(receiving != nullptr && sending != nullptr);
    ASSERT_TRUE(until([&] { return sender->test(*sending, &done, nullptr) != abi::kSuccess || done != 0; }));
    ASSERT_TRUE(until([&] { return receiver->test(*receiving, &done, &bytes) != abi::kSuccess || bytes != 0; }));
    EXPECT_EQ(static_cast<std::size_t>(bytes), size);
    gpus_->read(std::span(came).first(size), in, 1);
    EXPECT_TRUE(std::equal(came.begin(), came.begin() + static_cast<std::ptrdiff_t>(size), sent.begin()));
  }
  EXPECT_TRUE(a->deregister(*from));
  EXPECT_TRUE(b->deregister(*into));
  a->close();
  b->close();
}

TEST_F(NcclNics, ThatKeepMemoryLeaveItsHandleValidAndTheSameBytesGetAnother) {
  const auto a = on("nic0");
  std::vector<std::byte> bytes(12345);
  const auto made = a->register_memory(bytes.data(), bytes.size(), Access::write);
  ASSERT_TRUE(made) << made.status().to_string();
  const RegionId before = (*made)->region.id;
  nic::settings().keeping = [](std::uint64_t size) { return size == 12345 ? EBUSY : 0; };
  EXPECT_EQ(a->deregister(*made).code(), ErrorCode::not_fenced);
  nic::settings().keeping = nullptr;
  const auto again = a->register_memory(bytes.data(), bytes.size(), Access::write);
  ASSERT_TRUE(again) << again.status().to_string();
  EXPECT_NE(*again, *made);
  EXPECT_EQ((*made)->region.id, before) << "NCCL may give it back once more";
  (void)a->deregister(*made);
  EXPECT_TRUE(a->deregister(*again));
  a->close();
}

// Two channels of one peer, or two communicators, that receive into the same bytes.
TEST_F(NcclNics, AConnectionThatClosesTakesNoMemoryFromAnother) {
  const auto a = on("nic0"), b = on("nic1");
  std::shared_ptr<Sender> first, second;
  std::shared_ptr<Receiver> to_first, to_second;
  ASSERT_NO_FATAL_FAILURE(meet(a, b, first, to_first));
  ASSERT_NO_FATAL_FAILURE(meet(a, b, second, to_second));
  std::vector<std::byte> out(70000, std::byte{5}), in(70000);
  const auto from = a->register_memory(out.data(), out.size(), first->access());
  const auto into = b->register_memory(in.data(), in.size(), to_first->access());
  ASSERT_TRUE(from && into);
  ASSERT_NO_FATAL_FAILURE(move(*first, **from, *to_first, **into));
  ASSERT_NO_FATAL_FAILURE(move(*second, **from, *to_second, **into));
  EXPECT_EQ(first->close(), abi::kSuccess);
  std::atomic<bool> released{false};
  a->later(second->peer(), [&] { released = true; });  // behind what the closed one had to release
  ASSERT_TRUE(until([&] { return released.load(); }));
  in.assign(in.size(), std::byte{0});
  ASSERT_NO_FATAL_FAILURE(move(*second, **from, *to_second, **into));
  EXPECT_EQ(in, out);
  EXPECT_TRUE(a->deregister(*from));
  EXPECT_TRUE(b->deregister(*into));
  a->close();
  b->close();
}

// NCCL's logger here waits as long as it is told to; so does whoever calls it.
std::atomic<bool> reads{true};
std::atomic<int> told_late{0}, told{0};
void slow_logger(abi::LogLevel, unsigned long, const char*, int, const char*, ...) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!reads && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  told_late += reads ? 0 : 1;
  ++told;
}

TEST_F(NcclNics, ASendDoesNotWaitForItsRouteToBeExplained) {
  for (const bool informs : {true, false}) {
    const auto a = on("nic0"), b = on("nic1");
    std::shared_ptr<Sender> sender;
    std::shared_ptr<Receiver> receiver;
    ASSERT_NO_FATAL_FAILURE(meet(a, b, sender, receiver));
    std::vector<std::byte> out(64, std::byte{5}), in(64);
    const auto from = a->register_memory(out.data(), out.size(), sender->access());
    const auto into = b->register_memory(in.data(), in.size(), receiver->access());
    ASSERT_TRUE(from && into);
    told = told_late = 0;
    log_.use(&slow_logger, informs);
    reads = false;
    ASSERT_NO_FATAL_FAILURE(move(*sender, **from, *receiver, **into));
    EXPECT_EQ(told_late, 0) << "it waited for the log";
    reads = true;
    if (informs) EXPECT_TRUE(until([&] { return told > 0; }));
    log_.use(nullptr, false);
    if (!informs) EXPECT_EQ(told, 0) << "nobody reads it";
    EXPECT_TRUE(a->deregister(*from));
    EXPECT_TRUE(b->deregister(*into));
    a->close();
    b->close();
  }
}

TEST_F(NcclNics, ThatDoNotReachAGpuRefuseItsMemoryInsteadOfStagingIt) {
  nic::settings().dmabuf_in_library = false;
  library_ = nic::library();
  const auto a = on("nic0");
  const Status refused = a->register_memory(gpus_->allocate(kNicBytes, 0), kNicBytes, Access::write).status();
  EXPECT_EQ(refused.code(), ErrorCode::unsupported);
  EXPECT_NE(refused.message().find("GPU memory cannot be registered"), std::string::npos) << refused.message();
  a->close();
}

}  // namespace
}  // namespace fairway::nccl
