#pragma once

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#include "transport/verbs/library.h"

namespace fairway::transport::verbs::standin {

// librdmacm's functions over one table of ids in this process: who connects to a port reaches who listens there, on
// whatever channel. Checks what users must keep to: every event is acknowledged once and before its id ends, and
// nothing is left.
class Cm {
 public:
  inline static Cm* now = nullptr;  // that the functions work on

  Cm() { now = this; }
  ~Cm() { now = nullptr; }

  bool iwarp = true;
  int connect_fails = 0;                                                   // errno of rdma_connect
  bool no_channels = false;                                                // as without /dev/infiniband/rdma_cm
  std::map<std::string, int> device_of{{"10.0.0.1", 0}, {"10.0.0.2", 1}};  // by address: index into devices
  std::vector<std::string> steps;                                          // what was done to which, in order

  // While held, rdma_connect does not return.
  void hold_connect(bool on) {
    const std::lock_guard lock(mutex_);
    held_ = on;
    change_.notify_all();
  }
  void wait_in_connect() {
    std::unique_lock lock(mutex_);
    change_.wait(lock, [&] { return connecting_ != 0; });
  }
  std::size_t live_ids() {
    const std::lock_guard lock(mutex_);
    return ids_.size();
  }
  std::size_t unacknowledged() {
    const std::lock_guard lock(mutex_);
    return given_;
  }

  static std::shared_ptr<const CmLibrary> library();

 private:
  struct Id : abi::CmId {
    std::string address;
    std::uint16_t listens = 0;
    std::string to;
    std::uint16_t to_port = 0;
    Id* other = nullptr;
    int unacknowledged = 0;
  };
  struct Given : abi::CmEvent {
    std::vector<std::byte> bytes;
  };
  struct Channel : abi::CmChannel {
    std::deque<std::unique_ptr<Given>> waiting;
  };

  void tell(Id& id, int type, const abi::CmParameters* from = nullptr, Id* listener = nullptr, int status = 0) {
    auto event = std::make_unique<Given>();
    event->id = &id;
    event->listener = listener;
    event->type = type;
    event->status = status;
    event->from = {};
    if (from != nullptr) {
      event->from = *from;
      const auto* bytes = static_cast<const std::byte*>(from->bytes);
      event->bytes.assign(bytes, bytes + from->size);
      event->bytes.resize(56);  // as InfiniBand's pads it
      event->from.bytes = event->bytes.data();
      event->from.size = 56;
    }
    static_cast<Channel*>(id.channel)->waiting.push_back(std::move(event));
  }
  static std::string text(const void* address, std::uint16_t& port) {
    const auto* at = static_cast<const sockaddr_in*>(address);
    const auto* b = reinterpret_cast<const std::uint8_t*>(&at->sin_addr);
    port = ntohs(at->sin_port);
    return std::to_string(b[0]) + "." + std::to_string(b[1]) + "." + std::to_string(b[2]) + "." + std::to_string(b[3]);
  }
  void place(Id& id, const std::string& address) {
    id.address = address;
    const auto found = device_of.find(address);
    if (found == device_of.end()) return;
    devices_[found->second].transport_type = iwarp ? abi::kIwarp : abi::kInfinibandOrRoce;
    std::strcpy(devices_[found->second].name, found->second == 0 ? "first" : "second");
    contexts_[found->second].device = &devices_[found->second];
    id.context = &contexts_[found->second];
    id.port = 1;
  }
  static int fail(int error) {
    errno = error;
    return -1;
  }
  int connect(Id& id, const abi::CmParameters& with);

  std::mutex mutex_;
  std::condition_variable change_;
  bool held_ = false;
  int connecting_ = 0;
  std::size_t given_ = 0;
  std::uint16_t next_port_ = 4000;
  std::vector<std::unique_ptr<Id>> ids_;
  abi::Device devices_[2] = {};
  abi::Context contexts_[2] = {};
};

inline int Cm::connect(Id& id, const abi::CmParameters& with) {
  std::unique_lock lock(mutex_);
  ++connecting_;
  change_.notify_all();
  change_.wait(lock, [&] { return !held_; });
  --connecting_;
  if (connect_fails != 0) return fail(connect_fails);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    Id* const each = ids_[i].get();
    if (each->listens == 0 || each->address != id.to || each->listens != id.to_port) continue;
    Id* const request = ids_.emplace_back(std::make_unique<Id>()).get();
    request->channel = each->channel;
    request->user = each->user;
    request->other = &id;
    id.other = request;
    place(*request, each->address);
    tell(*request, abi::kConnectRequest, &with, each);
    return 0;
  }
  tell(id, 8, nullptr, nullptr, -ECONNREFUSED);
  return 0;
}

inline std::shared_ptr<const CmLibrary> Cm::library() {
  auto made = std::make_shared<CmLibrary>();
  made->create_channel = []() -> abi::CmChannel* {
    if (now->no_channels) {
      errno = ENOENT;
      return nullptr;
    }
    auto* channel = new Channel;
    channel->fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    return channel;
  };
  made->destroy_channel = [](abi::CmChannel* channel) {
    const std::lock_guard lock(now->mutex_);
    for (const auto& event : static_cast<Channel*>(channel)->waiting)  // requests that nobody saw
      std::erase_if(now->ids_, [&](const auto& each) { return each.get() == event->id; });
    ::close(channel->fd);
    delete static_cast<Channel*>(channel);
  };
  made->create_id = [](abi::CmChannel* channel, abi::CmId** id, void* user, int) {
    const std::lock_guard lock(now->mutex_);
    Id* const fresh = now->ids_.emplace_back(std::make_unique<Id>()).get();
    fresh->channel = channel;
    fresh->user = user;
    *id = fresh;
    return 0;
  };
  made->destroy_id = [](abi::CmId* id) {
    std::unique_lock lock(now->mutex_);
    auto* const ours = static_cast<Id*>(id);
    now->change_.wait(lock, [&] { return ours->unacknowledged == 0; });
    auto& waiting = static_cast<Channel*>(id->channel)->waiting;
    std::erase_if(waiting, [&](const auto& event) { return event->id == id; });
    if (ours->other != nullptr) {
      ours->other->other = nullptr;
      now->tell(*ours->other, 10);
    }
    now->steps.push_back("id ends");
    std::erase_if(now->ids_, [&](const auto& each) { return each.get() == ours; });
    return 0;
  };
  made->bind = [](abi::CmId* id, const void* address) {
    const std::lock_guard lock(now->mutex_);
    std::uint16_t port = 0;
    now->place(*static_cast<Id*>(id), text(address, port));
    return id->context != nullptr ? 0 : fail(ENODEV);
  };
  made->listen = [](abi::CmId* id, int) {
    const std::lock_guard lock(now->mutex_);
    static_cast<Id*>(id)->listens = now->next_port_++;
    return 0;
  };
  made->source_port = [](abi::CmId* id) { return htons(static_cast<Id*>(id)->listens); };
  made->resolve_address = [](abi::CmId* id, const void* source, const void* destination, int) {
    const std::lock_guard lock(now->mutex_);
    auto& ours = *static_cast<Id*>(id);
    std::uint16_t none = 0;
    now->place(ours, text(source, none));
    ours.to = text(destination, ours.to_port);
    now->tell(ours, ours.context != nullptr ? abi::kAddressResolved : 1, nullptr, nullptr, -ENODEV);
    return 0;
  };
  made->resolve_route = [](abi::CmId* id, int) {
    const std::lock_guard lock(now->mutex_);
    now->tell(*static_cast<Id*>(id), abi::kRouteResolved);
    return 0;
  };
  made->connect = [](abi::CmId* id, abi::CmParameters* with) { return now->connect(*static_cast<Id*>(id), *with); };
  made->accept = [](abi::CmId* id, abi::CmParameters* with) {
    const std::lock_guard lock(now->mutex_);
    auto& ours = *static_cast<Id*>(id);
    if (ours.other == nullptr) return fail(ECONNRESET);
    now->steps.push_back("accepted for " + std::to_string(with->number));
    now->tell(*ours.other, now->iwarp ? abi::kEstablished : abi::kConnectResponse, with);
    if (now->iwarp) now->tell(ours, abi::kEstablished);
    return 0;
  };
  made->reject = [](abi::CmId* id, const void*, std::uint8_t) {
    const std::lock_guard lock(now->mutex_);
    auto& ours = *static_cast<Id*>(id);
    if (ours.other == nullptr) return 0;
    now->tell(*ours.other, 8, nullptr, nullptr, 28);
    ours.other->other = nullptr;
    ours.other = nullptr;
    return 0;
  };
  made->establish = [](abi::CmId* id) {
    const std::lock_guard lock(now->mutex_);
    now->steps.push_back("established");
    now->tell(*static_cast<Id*>(id)->other, abi::kEstablished);
    return 0;
  };
  made->attributes = [](abi::CmId*, abi::QueuePairState*, int* mask) {
    *mask = abi::kMaskState;
    return 0;
  };
  made->get_event = [](abi::CmChannel* channel, abi::CmEvent** event) {
    const std::lock_guard lock(now->mutex_);
    auto& waiting = static_cast<Channel*>(channel)->waiting;
    if (waiting.empty()) return fail(EAGAIN);
    Given* const given = waiting.front().release();
    waiting.pop_front();
    ++static_cast<Id*>(given->id)->unacknowledged;
    ++now->given_;
    *event = given;
    return 0;
  };
  made->acknowledge = [](abi::CmEvent* event) {
    const std::lock_guard lock(now->mutex_);
    --static_cast<Id*>(event->id)->unacknowledged;
    --now->given_;
    now->change_.notify_all();
    delete static_cast<Given*>(event);
    return 0;
  };
  made->event_text = [](int type) { return type == 8 ? "RDMA_CM_EVENT_REJECTED" : "an event"; };
  return made;
}

}  // namespace fairway::transport::verbs::standin
