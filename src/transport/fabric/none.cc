#include "transport/fabric/fabric.h"

// In a build without libfabric's headers: a transport that says so.
namespace fairway::transport {
namespace {

class NoFabric final : public Transport {
 public:
  std::string_view name() const override { return "fabric"; }
  Status probe() override {
    return {ErrorCode::unsupported, "fabric: this build is without libfabric: install libfabric-dev and build again"};
  }
  std::span<const Device> devices() const override { return {}; }
  Status attach(Task&) override { return probe(); }
  Status connect(PeerIndex, Role) override { return probe(); }
  void exchange(PeerIndex, std::span<const std::byte>) override {}
  void disconnect(PeerIndex) override {}
  Result<RegisteredMemory> register_memory(const MemoryDescription&) override { return probe(); }
  void deregister(std::uint64_t) override {}
  Result<std::uint64_t> import(PeerIndex, const RemoteMemory&, std::span<const std::vector<std::byte>>) override {
    return probe();
  }
  void release(std::uint64_t) override {}
  std::size_t post(std::span<const Slice>) override { return 0; }
  std::size_t poll(std::span<Event>, Time) override { return 0; }
  void fence(LinkId) override {}
  void reconnect(LinkId) override {}
  void cancel(SliceToken) override {}
  void close() override {}
};

}  // namespace

std::unique_ptr<Transport> make_fabric_transport(RegionTable&, Runtime&, const FabricOptions&) {
  return std::make_unique<NoFabric>();
}

}  // namespace fairway::transport
