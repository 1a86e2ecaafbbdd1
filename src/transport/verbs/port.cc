#include "transport/verbs/port.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>

#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"

// Why a port cannot be used: no address, no such partition, too little memory that may be locked.
namespace fairway::transport::verbs {
namespace {

constexpr std::size_t kProofsBytes = 400 * 1024;  // that an engine registers to prove links

constexpr std::uint8_t bit(Op op) {
  return static_cast<std::uint8_t>(op);
}

Capabilities capabilities(const abi::Limits& limits, const abi::PortState& port, bool iwarp) {
  Capabilities can;
  can.operations = bit(Op::write) | bit(Op::read) | bit(Op::message) | bit(Op::write_immediate);
  // A NIC's atomics are atomic among themselves. The agent of a region's atomics is its CPU, so they are of use only
  // where the device promises that the two agree.
  can.atomics_by_cpu = limits.atomics == abi::kAtomicsGlobal && !iwarp;
  if (can.atomics_by_cpu)
    can.operations = static_cast<std::uint8_t>(can.operations | bit(Op::fetch_add) | bit(Op::compare_swap));
  can.shapes = static_cast<std::uint8_t>(Shape::contiguous) | static_cast<std::uint8_t>(Shape::strided) |
               static_cast<std::uint8_t>(Shape::indexed);
  // A GPU's only where kernel and NIC make it so: each region is tried, and refused with the reason.
  can.memory_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned) |
                     1 << static_cast<unsigned>(MemoryKind::device);
  // The completion of a receive goes to host memory, and may overtake bytes that go to a GPU's.
  can.immediate_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned);
  can.needs_keys = true;
  can.max_slice_bytes = std::min<std::uint64_t>(kMaxSliceBytes, port.max_message);
  can.max_message_bytes = kMessageBytes;
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.completion = Meaning::visible;  // by the read that follows the writes, or by a CPU that copied: docs/verbs.md
  can.revocation = Revocation::by_owner;
  can.tells_revoked = !iwarp;
  return can;
}

// How many ports stand behind one: the legs of the bond that its interface is, or is a VLAN of.
std::uint8_t legs_of(const std::string& port_folder, std::uint32_t gid_index, std::string& bond) {
  std::ifstream named(port_folder + "/gid_attrs/ndevs/" + std::to_string(gid_index));
  std::string interface;
  if (!(named >> interface)) return 1;
  const std::filesystem::path net("/sys/class/net");
  std::vector<std::string> candidates{interface};
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator(net / interface, ignored))
    if (const std::string file = each.path().filename(); file.starts_with("lower_"))
      candidates.push_back(file.substr(6));
  for (const std::string& each : candidates) {
    std::ifstream slaves(net / each / "bonding/slaves");
    std::uint32_t count = 0;
    for (std::string leg; slaves >> leg;) ++count;
    if (count == 0) continue;
    bond = each;
    return static_cast<std::uint8_t>(std::min(count, kMaxQueuePairs));
  }
  return 1;
}

}  // namespace

Port::Port(std::shared_ptr<const Library> library, abi::Context* context, std::uint8_t number, std::size_t index,
           const RdmaOptions& options)
    : library_(std::move(library)), context_(context), number_(number), index_(index), options_(options) {}

Port::~Port() {
  close();
}

void Port::close() {
  if (auto* each = std::exchange(word_region_, nullptr)) library_->deregister(each);
  if (auto* each = std::exchange(channel_, nullptr)) library_->destroy_channel(each);
  if (auto* each = std::exchange(domain_, nullptr)) library_->free_domain(each);
  if (auto* each = std::exchange(context_, nullptr)) library_->close_device(each);
}

Port::Hold Port::hold() const {
  int now = holders_.load(std::memory_order_relaxed);
  while (now != kGone && !holders_.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) {
  }
  return Hold(now == kGone ? nullptr : this);
}

bool Port::let_go() {
  int nobody = 0;
  return holders_.compare_exchange_strong(nobody, kGone, std::memory_order_acq_rel);
}

Status Port::open(const VerbsOptions& options, std::span<const GidEntry> iwarp_addresses) {
  device_.name = std::string(context_->device->name) + "/" + std::to_string(number_);
  const auto no = [&](const std::string& why, ErrorCode code = ErrorCode::unsupported) {
    return Status(code, "verbs: " + device_.name + ": " + why);
  };
  if (const int error = library_->query_device(context_, &limits_); error != 0)
    return no("ibv_query_device: " + system_text(error));
  if (library_->query_paging == nullptr || library_->query_paging(context_, &paging_) != 0) paging_ = {};
  if (const int error = library_->query_port(context_, number_, &state_); error != 0)
    return no("ibv_query_port: " + system_text(error));
  if (state_.state != abi::kPortActive) return no("the port is not active: bring its link up");
  if (Status status = choose_address(iwarp_addresses); !status) return no(status.message());
  if (Status status = iwarp() ? Status() : choose_partition(); !status) return no(status.message());
  domain_ = library_->alloc_domain(context_);
  if (domain_ == nullptr) return no("ibv_alloc_pd: " + system_text(errno));
  word_region_ = register_memory(word_, sizeof word_, abi::kRemoteRead, false);
  abi::MemoryRegion* trial = nullptr;
  // What a link and its proof need, so that the limit is known before there is one.
  std::vector<std::byte> memory(LaneMemory::kBytes + kProofsBytes);
  if (word_region_ != nullptr) trial = register_memory(memory.data(), memory.size(), abi::kLocalWrite, false);
  if (trial == nullptr) return refusal("1 MiB of memory cannot be registered", errno);
  library_->deregister(trial);
  channel_ = library_->create_channel(context_);
  if (channel_ == nullptr) return no("ibv_create_comp_channel: " + system_text(errno));
  for (const int fd : {channel_->fd, context_->async_fd})
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return no("fcntl: " + system_text(errno));
  describe(options);
  return {};
}

Status Port::choose_address(std::span<const GidEntry> iwarp_addresses) {
  const bool is_iwarp = context_->device->transport_type == abi::kIwarp;
  address_.fabric = is_iwarp ? Fabric::iwarp : state_.link_layer == 2 ? Fabric::roce : Fabric::infiniband;
  std::vector<GidEntry> entries(iwarp_addresses.begin(), iwarp_addresses.end());
  if (!is_iwarp)
    if (Status status = read_gids(entries); !status) return status;
  auto chosen = choose_gid(address_.fabric, entries, address_.gid);
  if (options_.gid_index >= 0) {
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const GidEntry& entry) {
      return entry.index == static_cast<std::uint32_t>(options_.gid_index);
    });
    if (at == entries.end())
      return {ErrorCode::invalid_argument, "it has no GID of index " + std::to_string(options_.gid_index) +
                                               " (EngineOptions::rdma.gid_index); it has: " + text_of(entries)};
    chosen = *at;
  }
  if (!chosen)
    return {ErrorCode::unsupported, std::string("it has no ") + (is_iwarp ? "iWARP" : "RoCE v2") +
                                        " address beyond its own wire: give its interface an IP address"};
  address_.gid = chosen->gid;
  address_.lid = state_.lid;
  gid_index_ = static_cast<std::uint8_t>(chosen->index);
  return {};
}

Status Port::read_gids(std::vector<GidEntry>& entries) const {
  std::vector<abi::Gid> table(static_cast<std::size_t>(std::max(limits_.ports, std::uint8_t{1})) *
                              static_cast<std::size_t>(std::clamp(state_.gids, 1, 4096)));
  const ssize_t count = library_->query_gids(context_, table.data(), table.size(), 0, sizeof(abi::Gid));
  if (count < 0) return {ErrorCode::unsupported, "ibv_query_gid_table: " + system_text(static_cast<int>(-count))};
  for (const abi::Gid& each : std::span(table).first(static_cast<std::size_t>(count))) {
    if (each.port != number_ || each.index > 255) continue;
    GidEntry& entry = entries.emplace_back();
    std::copy_n(reinterpret_cast<const std::byte*>(each.gid), entry.gid.size(), entry.gid.begin());
    entry.index = each.index;
    entry.type = each.type;
  }
  return {};
}

Status Port::choose_partition() {
  if (options_.partition == 0) return {};
  std::string found;
  for (int i = 0; i < state_.pkeys; ++i) {
    std::uint16_t key = 0;
    if (library_->query_partition(context_, number_, i, &key) != 0) break;
    key = static_cast<std::uint16_t>(key << 8 | key >> 8);  // it comes big-endian
    pkey_index_ = static_cast<std::uint16_t>(i);
    if (key == options_.partition) return {};
    if (key != 0) found += fmt::format("{}{:#06x}", found.empty() ? "" : ", ", key);
  }
  return {ErrorCode::invalid_argument,
          fmt::format("it is in no partition {:#06x} (EngineOptions::rdma.partition), only in {}", options_.partition,
                      found)};
}

void Port::describe(const VerbsOptions& options) {
  const std::string folder = context_->device->ibdev_path;
  device_.bytes_per_second = bytes_per_second(state_.speed, state_.width);
  device_.capabilities = capabilities(limits_, state_, iwarp());
  const std::string port_folder = folder + "/ports/" + std::to_string(number_);
  legs_ = legs_of(port_folder, gid_index_, bond_);
  address_.manager = iwarp() || (options_.connection_manager && address_.fabric == Fabric::roce);
  address_.plain = iwarp() || !options.immediates.value_or(true);
  address_.queue_pairs = options_.queue_pairs == 0 ? legs_ : static_cast<std::uint8_t>(options_.queue_pairs);
  device_.moved_by = MovedBy::nic;
  std::error_code ignored;
  hardware_ = std::filesystem::exists(folder + "/device", ignored);
  // iWARP's requests are done when TCP has them, in hardware and in software.
  read_back_ = iwarp() || options.read_back.value_or(hardware_);
  std::ifstream node(folder + "/device/numa_node");
  if (int number = -1; node >> number) device_.numa_node = number;
}

Status Port::refusal(const std::string& what, int error) const {
  const std::string text = "verbs: " + device_.name + ": " + what + ": " + system_text(error);
  if (error != ENOMEM && error != EAGAIN) return {ErrorCode::system_error, text};
  return {ErrorCode::resource_exhausted,
          text + ": raise the limit of locked memory (ulimit -l, LimitMEMLOCK=), or rdma.max of the cgroup"};
}

std::uint8_t Port::mtu() const {
  const int most = std::clamp(state_.active_mtu, 1, 5);
  const int wanted = options_.mtu == 0 ? most : std::countr_zero(options_.mtu / 128);
  return static_cast<std::uint8_t>(std::min(most, wanted));
}

Status Port::look_again() {
  const auto no = [&](const std::string& why) {
    return Status(ErrorCode::link_failed, "verbs: " + device_.name + ": " + why);
  };
  if (!lost_.empty()) return no(lost_);
  abi::PortState now{};
  if (library_->query_port(context_, number_, &now) != 0 || now.state != abi::kPortActive)
    return no("the port is not active");
  state_ = now;
  if (iwarp()) return {};  // its addresses are rdma_cm's, which says so itself
  const std::string was = text_of(address_);
  const Status status = choose_address({});
  return status ? Status() : no("its address " + was + " is gone, and " + status.message());
}

bool Port::has_address() const {
  if (iwarp()) return true;
  if (address_.fabric == Fabric::infiniband) {
    // Not of RoCE's: soft-RoCE asks its network card under the lock that whoever takes that card down holds.
    abi::PortState now{};
    if (library_->query_port(context_, number_, &now) != 0 || now.lid != address_.lid) return false;
  }
  std::vector<GidEntry> entries;
  return read_gids(entries) && std::any_of(entries.begin(), entries.end(), [&](const GidEntry& each) {
           return each.index == gid_index_ && each.gid == address_.gid;
         });
}

void Port::drain_channel() {
  abi::CompletionQueue* queue = nullptr;
  void* user = nullptr;
  while (library_->get_event(channel_, &queue, &user) == 0) library_->acknowledge(queue, 1);
}

std::string Port::what_happened() {
  std::string happened;
  bool readdressed = false;
  abi::AsyncEvent event{};
  while (library_->get_async_event(context_, &event) == 0) {
    const bool here = event.element.port == number_;  // of those events that name a port
    if (event.type == abi::kEventDeviceFatal) lose(happened = "the device failed or was removed");
    if (event.type == abi::kEventQueueError) happened = "one of its completion queues broke";
    if (event.type == abi::kEventPortError && here) happened = "the port went down";
    readdressed |= (event.type == abi::kEventGidChange || event.type == abi::kEventLidChange) && here;
    library_->acknowledge_async(&event);  // what befell one queue pair shows in its completions
  }
  if (happened.empty() && readdressed && !has_address()) happened = "its address " + text_of(address_) + " is gone";
  return happened;
}

// What regions are used by: writes and reads, on both sides, and atomics where the NIC does them.
unsigned Port::missing_paging(bool atomics) const {
  const unsigned needed = abi::kPagesWrites | abi::kPagesReads | (atomics ? unsigned{abi::kPagesAtomics} : 0);
  return (paging_.general & abi::kPages) == 0 ? needed : needed & ~paging_.reliable;
}

std::string Port::why_no_pages(bool atomics) const {
  const unsigned missing = missing_paging(atomics);
  if (missing == 0) return "the kernel refused it";
  if ((paging_.general & abi::kPages) == 0) return "the device has no on-demand paging";
  std::string names;
  for (const auto& [bit, name] : {std::pair<unsigned, const char*>{abi::kPagesWrites, "writes"},
                                  {abi::kPagesReads, "reads"},
                                  {abi::kPagesAtomics, "atomics"}})
    if ((missing & bit) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  return "the device has no on-demand paging for " + names + " of reliable queue pairs";
}

abi::MemoryRegion* Port::register_memory(void* address, std::size_t size, int access, bool relaxed) const {
  if (gone()) {
    errno = ENODEV;
    return nullptr;
  }
  if (relaxed && library_->register_optional != nullptr) {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    const auto flags = static_cast<unsigned>(access | abi::kRelaxedOrdering);
    if (auto* region = library_->register_optional(domain_, address, size, place, flags)) return region;
  }
  return library_->register_region(domain_, address, size, access);
}

}  // namespace fairway::transport::verbs
