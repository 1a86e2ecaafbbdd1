#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "conformance/own_side.h"
#include "conformance/world.h"
#include "sys/system_runtime.h"
#include "transport/verbs/library.h"
#include "transport/verbs/verbs.h"

// Two sides in one process on the RDMA devices of this machine: soft-RoCE or soft-iWARP in a guest, or NICs. What
// stands between the transport and libibverbs knows the queue pairs, and can break one.
namespace fairway::conformance {
namespace {

namespace abi = transport::verbs::abi;
using transport::verbs::Library;

const Library* real = nullptr;
bool any_iwarp = false;            // among the devices of this machine
bool agrees_with_the_cpu = false;  // what devices say of their atomics

class QueuePairs {
 public:
  static abi::QueuePair* create(abi::ProtectionDomain* domain, abi::QueuePairOptions* options) {
    const std::lock_guard lock(mutex_);
    abi::QueuePair* made = real->create_pair(domain, options);
    if (made != nullptr) live_.emplace_back(made, reinterpret_cast<std::uintptr_t>(options->user));
    return made;
  }
  static int destroy(abi::QueuePair* pair) {
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [pair](const auto& each) { return each.first == pair; });
    return real->destroy_pair(pair);
  }
  static bool break_one(std::uint64_t end_name) {
    const std::lock_guard lock(mutex_);
    for (const auto& [pair, name] : live_) {
      if (name != end_name) continue;
      abi::QueuePairState state{};
      state.state = abi::kError;
      return real->modify_pair(pair, &state, abi::kMaskState) == 0;
    }
    return false;
  }

 private:
  static inline std::mutex mutex_;                                             // guards live_
  static inline std::vector<std::pair<abi::QueuePair*, std::uint64_t>> live_;  // by their ends' names
};

int query_device(abi::Context* context, abi::Limits* limits) {
  const int result = real->query_device(context, limits);
  if (agrees_with_the_cpu) limits->atomics = abi::kAtomicsGlobal;
  return result;
}

// Of this machine, those that a transport of one device alone can use.
std::vector<std::string> usable_devices() {
  auto opened = Library::open();
  if (!opened) return {};
  static const Library library = std::move(*opened);
  real = &library;
  std::vector<std::string> names;
  int count = 0;
  abi::Device** list = library.list(&count);
  for (int i = 0; list != nullptr && i < count; ++i) {
    names.emplace_back(list[i]->name);
    any_iwarp |= list[i]->transport_type == abi::kIwarp;
  }
  if (list != nullptr) library.free_list(list);
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  transport::RegionTable regions(1);
  std::erase_if(names, [&](const std::string& name) {
    transport::VerbsOptions options;
    options.rdma.devices = {name};
    return !transport::open_verbs_transport(regions, runtime, options);
  });
  return names;
}

const std::vector<std::string>& devices() {
  static const std::vector<std::string> found = usable_devices();
  return found;
}

struct Setting {
  bool both_devices = false;  // on each side, so that each meets itself
  std::uint16_t lanes = 1;
  bool read_back = false;
  bool atomics = false;
  bool by_rdma_cm = false;  // and without immediates, as iWARP is
};

class VerbsWorld final : public World {
 public:
  explicit VerbsWorld(const Setting& setting) : setting_(setting), runtime_(system_.runtime()) {
    agrees_with_the_cpu = setting.atomics;
    auto library = std::make_shared<Library>(*real);
    library->create_pair = &QueuePairs::create;
    library->destroy_pair = &QueuePairs::destroy;
    library->query_device = &query_device;
    const auto maker = [&](std::size_t device) {
      transport::VerbsOptions options;
      options.rdma.devices = {devices()[device]};
      if (setting.both_devices) options.rdma.devices.push_back(devices()[1 - device]);
      options.rdma.queue_pairs = setting.lanes;
      options.rdma.connection_manager = setting.by_rdma_cm;
      if (setting.by_rdma_cm) options.immediates = false;
      options.read_back = setting.read_back;
      options.library = library;
      return [options](transport::RegionTable& regions, Runtime& runtime) {
        return transport::open_verbs_transport(regions, runtime, options);
      };
    };
    a_ = std::make_unique<OwnSide>(runtime_, maker(0));
    b_ = std::make_unique<OwnSide>(runtime_, maker(1));
    a_->start();
    b_->start();
  }
  ~VerbsWorld() override {
    b_->carry_no_more();  // leaving is said to the other side too
    a_.reset();
    b_.reset();
  }
  std::size_t links() const override { return (setting_.both_devices ? 2u : 1u) * setting_.lanes; }
  bool break_link(std::uint64_t name) override { return QueuePairs::break_one(name << 1 | 1); }  // the initiator's end

 private:
  const Setting setting_;
  sys::SystemRuntime system_;
  Runtime runtime_;
};

Kind kind(const char* name, const Setting& setting) {
  const auto why_not = [] { return std::string(devices().size() < 2 ? "there are no two RDMA devices here" : ""); };
  const auto left_out = [](const std::string& claim) {
    return std::string(any_iwarp && claim == "ARevokedRegionIsRefused"
                           ? "iWARP breaks the link of a slice to a region that has ended"
                           : "");
  };
  return {name, 1, [=](std::uint64_t) { return std::make_unique<VerbsWorld>(setting); }, why_not, left_out};
}

}  // namespace

std::vector<Kind> all_kinds() {
  return {kind("verbs", {}), kind("verbs_two_ports", {true, 1, false, false}),
          kind("verbs_as_of_hardware", {false, 2, true, true}),
          kind("verbs_by_rdma_cm", {.read_back = true, .by_rdma_cm = true})};
}

}  // namespace fairway::conformance
