#include "transport/verbs/port.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"

// Devices as libibverbs has them, and why one cannot be used: no library, no device, no permission, no address, too
// little memory that may be locked.
namespace fairway::transport::verbs {
namespace {

constexpr std::uint8_t bit(Op op) {
  return static_cast<std::uint8_t>(op);
}

std::string system_text(int error) {
  return std::generic_category().message(error);
}

Capabilities capabilities(const abi::Limits& limits, const abi::PortState& port) {
  Capabilities can;
  can.operations = bit(Op::write) | bit(Op::read) | bit(Op::message) | bit(Op::write_immediate);
  // A NIC's atomics are atomic among themselves. The agent of a region's atomics is its CPU, so they are of use only
  // where the device promises that the two agree.
  can.atomics_by_cpu = limits.atomics == abi::kAtomicsGlobal;
  if (can.atomics_by_cpu)
    can.operations = static_cast<std::uint8_t>(can.operations | bit(Op::fetch_add) | bit(Op::compare_swap));
  can.shapes = static_cast<std::uint8_t>(Shape::contiguous) | static_cast<std::uint8_t>(Shape::strided) |
               static_cast<std::uint8_t>(Shape::indexed);
  can.memory_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned);
  can.max_slice_bytes = std::min<std::uint64_t>(kMaxSliceBytes, port.max_message);
  can.max_message_bytes = kMessageBytes;
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.completion = Meaning::visible;  // by the read that follows the writes, or by a CPU that copied: docs/verbs.md
  can.revocation = Revocation::by_owner;
  return can;
}

bool wanted(const VerbsOptions& options, const std::string& device, const std::string& port) {
  return options.devices.empty() || std::any_of(options.devices.begin(), options.devices.end(),
                                                [&](const auto& each) { return each == device || each == port; });
}

}  // namespace

Port::Port(std::shared_ptr<const Library> library, abi::Context* context, std::uint8_t number, std::size_t index)
    : library_(std::move(library)), context_(context), number_(number), index_(index) {}

Port::~Port() {
  if (word_region_ != nullptr) library_->deregister(word_region_);
  if (channel_ != nullptr) library_->destroy_channel(channel_);
  if (domain_ != nullptr) library_->free_domain(domain_);
  library_->close_device(context_);
}

Status Port::open(const VerbsOptions& options) {
  const std::string name = std::string(context_->device->name) + "/" + std::to_string(number_);
  const auto no = [&](const std::string& why, ErrorCode code = ErrorCode::unsupported) {
    return Status(code, "verbs: " + name + ": " + why);
  };
  if (const int error = library_->query_device(context_, &limits_); error != 0)
    return no("ibv_query_device: " + system_text(error));
  if (const int error = library_->query_port(context_, number_, &state_); error != 0)
    return no("ibv_query_port: " + system_text(error));
  if (context_->device->transport_type != 0) return no("its queue pairs cannot be set up by hand (iWARP, EFA)");
  if (state_.state != abi::kPortActive) return no("the port is not active: bring its link up");
  if (Status status = choose_address(); !status) return no(status.message());
  domain_ = library_->alloc_domain(context_);
  if (domain_ == nullptr) return no("ibv_alloc_pd: " + system_text(errno));
  word_region_ = register_memory(word_, sizeof word_, abi::kRemoteRead, false);
  abi::MemoryRegion* trial = nullptr;
  if (word_region_ != nullptr) {  // what a lane needs, so that the limit is known before there is one
    const LaneMemory memory = LaneMemory::make();
    if (memory) trial = register_memory(memory.get(), LaneMemory::kBytes, abi::kLocalWrite, false);
  }
  if (trial == nullptr)
    return no("memory cannot be registered (" + system_text(errno) +
              "): raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)");
  library_->deregister(trial);
  channel_ = library_->create_channel(context_);
  if (channel_ == nullptr) return no("ibv_create_comp_channel: " + system_text(errno));
  for (const int fd : {channel_->fd, context_->async_fd})
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return no("fcntl: " + system_text(errno));
  describe(options);
  return {};
}

Status Port::choose_address() {
  std::vector<abi::Gid> table(static_cast<std::size_t>(std::max(limits_.ports, std::uint8_t{1})) *
                              static_cast<std::size_t>(std::clamp(state_.gids, 1, 4096)));
  const ssize_t count = library_->query_gids(context_, table.data(), table.size(), 0, sizeof(abi::Gid));
  if (count < 0) return {ErrorCode::unsupported, "ibv_query_gid_table: " + system_text(static_cast<int>(-count))};
  std::vector<GidEntry> entries;
  for (const abi::Gid& each : std::span(table).first(static_cast<std::size_t>(count))) {
    if (each.port != number_ || each.index > 255) continue;
    GidEntry& entry = entries.emplace_back();
    std::copy_n(reinterpret_cast<const std::byte*>(each.gid), entry.gid.size(), entry.gid.begin());
    entry.index = each.index;
    entry.type = each.type;
  }
  address_.fabric = state_.link_layer == 2 ? Fabric::roce : Fabric::infiniband;
  const auto chosen = choose_gid(address_.fabric, entries);
  if (!chosen)
    return {ErrorCode::unsupported, "it has no RoCE v2 address beyond its own wire: give its interface an IP address"};
  address_.gid = chosen->gid;
  address_.lid = state_.lid;
  gid_index_ = static_cast<std::uint8_t>(chosen->index);
  return {};
}

void Port::describe(const VerbsOptions& options) {
  const std::string folder = context_->device->ibdev_path;
  device_.name = std::string(context_->device->name) + "/" + std::to_string(number_);
  device_.bytes_per_second = bytes_per_second(state_.speed, state_.width);
  device_.capabilities = capabilities(limits_, state_);
  device_.moved_by = MovedBy::nic;
  std::error_code ignored;
  const bool hardware = std::filesystem::exists(folder + "/device", ignored);
  read_back_ = options.read_back.value_or(hardware);
  std::ifstream node(folder + "/device/numa_node");
  if (int number = -1; node >> number) device_.numa_node = number;
}

bool Port::active() const {
  abi::PortState now{};
  return library_->query_port(context_, number_, &now) == 0 && now.state == abi::kPortActive;
}

void Port::drain_channel() {
  abi::CompletionQueue* queue = nullptr;
  void* user = nullptr;
  while (library_->get_event(channel_, &queue, &user) == 0) library_->acknowledge(queue, 1);
}

const char* Port::what_happened() {
  const char* happened = nullptr;
  abi::AsyncEvent event{};
  while (library_->get_async_event(context_, &event) == 0) {
    if (event.type == abi::kEventDeviceFatal) happened = "the device failed";
    if (event.type == abi::kEventPortError && event.element.port == number_) happened = "the port went down";
    library_->acknowledge_async(&event);  // what befell one queue pair shows in its completions
  }
  return happened;
}

abi::MemoryRegion* Port::register_memory(void* address, std::size_t size, int access, bool relaxed) const {
  if (relaxed && library_->register_optional != nullptr) {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    const auto flags = static_cast<unsigned>(access | abi::kRelaxedOrdering);
    if (auto* region = library_->register_optional(domain_, address, size, place, flags)) return region;
  }
  return library_->register_region(domain_, address, size, access);
}

Result<std::vector<std::unique_ptr<Port>>> open_ports(const VerbsOptions& options) {
  auto library = options.library;
  if (!library) {
    std::error_code ignored;
    if (std::filesystem::is_empty("/sys/class/infiniband", ignored) || ignored)  // before providers are loaded
      return Status(ErrorCode::unsupported,
                    "verbs: this machine has no RDMA device, or its driver is not loaded (/sys/class/infiniband)");
    auto opened = Library::open();
    if (!opened) return opened.status();
    library = std::make_shared<const Library>(std::move(*opened));
  }
  int count = 0;
  errno = 0;
  const std::unique_ptr<abi::Device*, void (*)(abi::Device**)> list(library->list(&count), library->free_list);
  if (!list) return Status(ErrorCode::unsupported, "verbs: ibv_get_device_list: " + system_text(errno));
  Status why(ErrorCode::unsupported,
             count == 0 ? "verbs: libibverbs lists no device: load ib_uverbs and install ibverbs-providers"
                        : "verbs: this host has no device or port of the wanted names");
  bool told = false;
  std::vector<std::unique_ptr<Port>> ports;
  for (int i = 0; i < count && ports.size() < kMaxPorts; ++i) {
    const std::string device = list.get()[i]->name;
    for (int number = 1, last = 1; number <= last && ports.size() < kMaxPorts; ++number) {
      const bool named = wanted(options, device, device + "/" + std::to_string(number));
      errno = 0;
      abi::Context* context = library->open_device(list.get()[i]);
      if (context == nullptr) {
        const std::string file = std::string("/dev/infiniband/") + list.get()[i]->dev_name;
        const int error = ::access(file.c_str(), R_OK | W_OK) != 0 ? errno : EIO;  // the library hides it
        if (named && !std::exchange(told, true))
          why = Status(ErrorCode::unsupported, "verbs: " + device + " cannot be opened (" + file + ": " +
                                                   system_text(error) + "): this user needs to read and write it");
        break;
      }
      auto port = std::make_unique<Port>(library, context, static_cast<std::uint8_t>(number), ports.size());
      abi::Limits limits{};
      if (library->query_device(context, &limits) == 0) last = limits.ports;
      if (!named) continue;
      Status opened = port->open(options);
      if (opened)
        ports.push_back(std::move(port));
      else if (!std::exchange(told, true))
        why = std::move(opened);
    }
  }
  if (ports.empty()) return why;
  return ports;
}

}  // namespace fairway::transport::verbs
