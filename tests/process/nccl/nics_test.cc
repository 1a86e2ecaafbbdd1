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
    return std::make_shared<Endpoint>(std::move(*engine), *settings, log_, jobs_, std::make_shared<SendCount>(0));
  }
  template <class Done>
  static bool until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done())
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  }

  std::unique_ptr<support::DeviceMemory> gpus_;
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::shared_ptr<const transport::verbs::Library> library_;
  Log log_;
  Jobs jobs_;
};

TEST_F(NcclNics, MoveGpuMemoryWithoutTheDriversCopies) {
  const auto a = on("nic0"), b = on("nic1");
  const auto listener = std::make_shared<Listener>(b);
  b->add(listener);
  const auto peer = a->engine().connect(b->engine().address());
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto sender = std::make_shared<Sender>(a, *peer, PortId{});
  a->add(sender);
  Message hello;
  hello.kind = Message::Kind::hello;
  hello.from = sender->id();
  a->tell(*peer, listener->id(), hello);
  std::shared_ptr<Receiver> receiver;
  ASSERT_TRUE(until([&] { return (receiver = listener->accept()) != nullptr; }));

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
