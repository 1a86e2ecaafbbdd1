#include "transport/loopback/direct_wire.h"

#include "transport/loopback/direct_port.h"
#include "transport/loopback/loopback.h"

namespace fairway::transport::loopback {

DirectWire::DirectWire(std::vector<Device> devices) : devices_(std::move(devices)) {}

Device DirectWire::default_device() {
  Device device;
  device.name = "loopback";
  Capabilities& can = device.capabilities;
  can.operations = static_cast<std::uint8_t>(Op::write) | static_cast<std::uint8_t>(Op::read) |
                   static_cast<std::uint8_t>(Op::message) | static_cast<std::uint8_t>(Op::fetch_add) |
                   static_cast<std::uint8_t>(Op::compare_swap) | static_cast<std::uint8_t>(Op::write_immediate);
  can.shapes = static_cast<std::uint8_t>(Shape::contiguous) | static_cast<std::uint8_t>(Shape::strided) |
               static_cast<std::uint8_t>(Shape::indexed);
  can.memory_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned);
  can.max_slice_bytes = 8 << 20;  // bounds what one failure leaves undecided
  can.max_message_bytes = kMessageBytes;
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.completion = CompletionLevel::visible;
  can.revocation = Revocation::by_owner;
  can.atomics_by_cpu = true;
  return device;
}

std::unique_ptr<Port> DirectWire::offer(std::uint64_t id, End end) {
  auto pipe = std::make_shared<Pipe>(next_name_.fetch_add(1, std::memory_order_relaxed), std::move(end.doorbell));
  {
    std::lock_guard lock(mutex_);
    std::erase_if(offers_, [](const auto& offer) { return offer.second.expired(); });
    offers_[id] = pipe;
    std::erase_if(pipes_, [](const auto& known) { return known.expired(); });
    pipes_.push_back(pipe);
  }
  return std::make_unique<DirectPort>(std::move(pipe), 0, end.regions);
}

std::unique_ptr<Port> DirectWire::attach(std::uint64_t id, End end) {
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    const auto offer = offers_.find(id);
    if (offer == offers_.end()) return nullptr;
    pipe = offer->second.lock();
    offers_.erase(offer);
  }
  if (!pipe) return nullptr;
  pipe->bells[1] = std::move(end.doorbell);
  pipe->attached.store(true, std::memory_order_release);
  return std::make_unique<DirectPort>(std::move(pipe), 1, end.regions);
}

bool DirectWire::cut(std::uint64_t name) {
  std::shared_ptr<Pipe> found;
  {
    std::lock_guard lock(mutex_);
    for (const auto& known : pipes_)
      if (auto pipe = known.lock(); pipe && pipe->name == name) found = std::move(pipe);
  }
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
