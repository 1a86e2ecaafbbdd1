#pragma once

#include <string>
#include <utility>

#include "sim/fabric.h"

namespace fairway::sim {

// One end of a simulated link, as a transport sees it. Owned by the transport. The fabric keeps the state that late
// frames need after it.
class FabricPort final : public transport::loopback::Port {
 public:
  FabricPort(Fabric& fabric, SimLink& link, unsigned side)
      : fabric_(fabric), link_(link), end_(link.ends[side]), side_(side) {}
  ~FabricPort() override;

  std::size_t post(std::span<const transport::loopback::Command> commands) override;
  transport::AtOnce move_now(const transport::SmallMove& move, RegionId region) override;
  transport::AtOnce send_now(std::span<const std::byte> head, std::span<const std::byte> tail) override;
  std::size_t poll(std::span<transport::Event> events, Time now, std::uint64_t& budget) override;
  bool idle() const override { return end_.outcomes.empty() && end_.inbound.empty(); }
  bool in_use() const override { return !end_.inbound.empty(); }
  void cancel(transport::SliceToken token) override;
  void cancel_memory(std::uint64_t local_handle) override;
  bool uses(std::uint64_t local_handle) const override;
  void fence() override;
  void cut() override { fabric_.break_link(link_); }
  void close() override;
  std::uint64_t name() const override { return link_.name; }

 private:
  transport::AtOnce try_at_once();

  Fabric& fabric_;
  SimLink& link_;
  LinkEnd& end_;
  const unsigned side_;
  std::vector<std::vector<std::byte>> lent_;  // messages returned by the last poll, valid until the next
};

// A host's attachment to the fabric.
class FabricWire final : public transport::loopback::Wire {
 public:
  FabricWire(Fabric& fabric, std::size_t nic, std::string name) : fabric_(fabric), nic_(nic), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::uint64_t fabric() const override { return 0x51; }
  std::span<const transport::Device> devices() const override;
  bool ready(transport::DeviceIndex device) const override;
  bool shares_fence(transport::DeviceIndex device) const override;
  bool tells_ready() const override;
  void flush() override;
  std::unique_ptr<transport::loopback::Port> offer(std::uint64_t id, transport::loopback::End end) override;
  std::unique_ptr<transport::loopback::Port> attach(std::uint64_t id, transport::loopback::End end) override;

 private:
  Fabric& fabric_;
  const std::size_t nic_;
  const std::string name_;
};

}  // namespace fairway::sim
