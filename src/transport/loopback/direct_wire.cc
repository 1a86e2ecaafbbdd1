#include "transport/loopback/direct_wire.h"

#include "transport/loopback/direct_port.h"
#include "transport/loopback/loopback.h"

namespace fairway::transport::loopback {

DirectWire::DirectWire(std::vector<Device> devices) : devices_(std::move(devices)) {}

Device DirectWire::default_device() {
  Device device;
  device.name = "loopback";
  Capabilities& can = device.capabilities;
  can.operations = bits(Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap, Op::write_immediate);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.visible_when_done = true;
  return device;
}

std::unique_ptr<Port> DirectWire::offer(std::uint64_t id, End end) {
  auto pipe = std::make_shared<Pipe>(next_name_.fetch_add(1, std::memory_order_relaxed), std::move(end.doorbell));
  pipe->regions[0] = &end.regions;
  offers_.add(id, pipe);
  return std::make_unique<DirectPort>(std::move(pipe), 0, end.regions);
}

std::unique_ptr<Port> DirectWire::attach(std::uint64_t id, End end) {
  auto pipe = offers_.find(id);
  if (!pipe || pipe->taken.exchange(true, std::memory_order_relaxed)) return nullptr;
  pipe->bells[1] = std::move(end.doorbell);
  pipe->regions[1] = &end.regions;
  pipe->attached.store(true, std::memory_order_release);
  return std::make_unique<DirectPort>(std::move(pipe), 1, end.regions);
}

bool DirectWire::cut(std::uint64_t name) {
  const auto found = offers_.find_if([name](const Pipe& pipe) { return pipe.name == name; });
  if (!found) return false;
  found->broken.store(true, std::memory_order_seq_cst);
  found->ring(0);
  found->ring(1);
  return true;
}

}  // namespace fairway::transport::loopback

namespace fairway {

std::shared_ptr<Loopback> make_loopback() {
  return std::make_shared<Loopback>(std::make_unique<transport::loopback::DirectWire>());
}

}  // namespace fairway
