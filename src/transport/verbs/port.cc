#include "transport/verbs/port.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>

#include "transport/command.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"

// Opens a port and checks that it can be used: its address, partition and locked-memory limit.
namespace fairway::transport::verbs {
namespace {

constexpr std::size_t kProofsBytes = 400 * 1024;    // an engine registers this much to prove links
constexpr Time kDrainTimeout = 100 * kMillisecond;  // it takes microseconds unless the NIC has failed
constexpr Time kDrainPause = kSecond;

Capabilities capabilities(const abi::Limits& limits, const abi::PortState& port, bool iwarp) {
  Capabilities can;
  can.operations = bits(Op::write, Op::read, Op::message, Op::write_immediate);
  // A NIC's atomics are atomic among themselves. A region's atomics belong to its CPU, so NIC atomics are usable only
  // if the device guarantees atomicity with the CPU.
  if (limits.atomics == abi::kAtomicsGlobal && !iwarp)
    can.operations = bits(can.operations, Op::fetch_add, Op::compare_swap);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  // GPU memory depends on kernel and NIC: each registration is tried, and fails with the reason.
  can.memory_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned) |
                     1 << static_cast<unsigned>(MemoryKind::device);
  // A receive completion is written to host memory and may overtake bytes written to GPU memory.
  can.immediate_kinds = 1 << static_cast<unsigned>(MemoryKind::host) | 1 << static_cast<unsigned>(MemoryKind::pinned);
  can.needs_keys = true;
  can.max_slice_bytes = std::min<std::uint64_t>(can.max_slice_bytes, port.max_message);
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.visible_when_done = true;  // by a read after the writes, or because a CPU copied them: docs/verbs.md
  return can;
}

// How many ports the bond has that this port's interface is, or is a VLAN of; else 1.
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
    : library_(std::move(library)), number_(number), index_(index), options_(options) {
  has_.context = context;
}

Port::~Port() {
  close();
}

void Port::close() {
  if (auto* each = std::exchange(has_.word_region, nullptr)) library_->deregister(each);
  if (auto* each = std::exchange(has_.channel, nullptr)) library_->destroy_channel(each);
  if (auto* each = std::exchange(has_.domain, nullptr)) library_->free_domain(each);
  if (auto* each = std::exchange(has_.context, nullptr)) library_->close_device(each);
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

Status Port::can_become(const Port& again) const {
  if (again.has_.address.fabric == has_.address.fabric && again.device_.capabilities == device_.capabilities) return {};
  return {ErrorCode::unsupported, "verbs: " + device_.name +
                                      ": the new device has other capabilities than the old one: restart the engine "
                                      "to use it"};
}

void Port::become(Port& again) {
  std::swap(has_, again.has_);
  lost_.clear();
  failed_.store(false, std::memory_order_release);
  no_drain_before_ = 0;
  holders_.store(0, std::memory_order_release);
}

Status Port::open(const VerbsOptions& options, std::span<const GidEntry> iwarp_addresses) {
  device_.name = std::string(has_.context->device->name) + "/" + std::to_string(number_);
  const auto no = [&](const std::string& why, ErrorCode code = ErrorCode::unsupported) {
    return Status(code, "verbs: " + device_.name + ": " + why);
  };
  if (const int error = library_->query_device(has_.context, &has_.limits); error != 0)
    return no("ibv_query_device: " + system_text(error));
  if (library_->query_paging == nullptr || library_->query_paging(has_.context, &has_.paging) != 0) has_.paging = {};
  if (const int error = library_->query_port(has_.context, number_, &has_.state); error != 0)
    return no("ibv_query_port: " + system_text(error));
  if (has_.state.state != abi::kPortActive) return no("the port is not active: bring its link up");
  has_.address.fabric = fabric_of(has_.state);
  if (Status status = choose_address(iwarp_addresses); !status) return no(status.message());
  if (Status status = iwarp() ? Status() : choose_partition(); !status) return no(status.message());
  has_.domain = library_->alloc_domain(has_.context);
  if (has_.domain == nullptr) return no("ibv_alloc_pd: " + system_text(errno));
  has_.word_region = register_memory(has_.word->bytes, sizeof *has_.word, abi::kRemoteRead, false);
  abi::MemoryRegion* trial = nullptr;
  // Registers as much as a link and its proof need, to find the limit before there is a link.
  std::vector<std::byte> memory(LaneMemory::kBytes + kProofsBytes);
  if (has_.word_region != nullptr) trial = register_memory(memory.data(), memory.size(), abi::kLocalWrite, false);
  if (trial == nullptr) return refusal("1 MiB of memory cannot be registered", errno);
  library_->deregister(trial);
  has_.channel = library_->create_channel(has_.context);
  if (has_.channel == nullptr) return no("ibv_create_comp_channel: " + system_text(errno));
  for (const int fd : {has_.channel->fd, has_.context->async_fd})
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return no("fcntl: " + system_text(errno));
  describe(options);
  return {};
}

Fabric Port::fabric_of(const abi::PortState& state) const {
  if (has_.context->device->transport_type == abi::kIwarp) return Fabric::iwarp;
  return state.link_layer == 2 ? Fabric::roce : Fabric::infiniband;
}

Status Port::choose_address(std::span<const GidEntry> iwarp_addresses) {
  const bool is_iwarp = iwarp();
  std::vector<GidEntry> entries(iwarp_addresses.begin(), iwarp_addresses.end());
  if (!is_iwarp)
    if (Status status = read_gids(entries); !status) return status;
  auto chosen = choose_gid(has_.address.fabric, entries, has_.address.gid);
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
                                        " address that is not link-local: give its interface an IP address"};
  has_.address.gid = chosen->gid;
  has_.address.lid = has_.state.lid;
  has_.address.global =
      has_.address.fabric == Fabric::infiniband && (has_.state.path_flags & abi::kHeaderRequired) != 0;
  has_.gid_index = static_cast<std::uint8_t>(chosen->index);
  return {};
}

Status Port::read_gids(std::vector<GidEntry>& entries) const {
  std::vector<abi::Gid> table(static_cast<std::size_t>(std::max(has_.limits.ports, std::uint8_t{1})) *
                              static_cast<std::size_t>(std::clamp(has_.state.gids, 1, 4096)));
  const ssize_t count = library_->query_gids(has_.context, table.data(), table.size(), 0, sizeof(abi::Gid));
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

std::uint16_t Port::partition_at(int index) const {
  std::uint16_t key = 0;
  if (library_->query_partition(has_.context, number_, index, &key) != 0) return 0;
  return static_cast<std::uint16_t>(key << 8 | key >> 8);  // big-endian
}

Status Port::choose_partition() {
  if (options_.partition == 0) {
    has_.partition = partition_at(has_.pkey_index = 0);
    return {};
  }
  std::string found;
  for (int i = 0; i < has_.state.pkeys; ++i) {
    const std::uint16_t key = partition_at(i);
    has_.pkey_index = static_cast<std::uint16_t>(i);
    has_.partition = key;
    if (key == options_.partition) return {};
    if (key != 0) found += fmt::format("{}{:#06x}", found.empty() ? "" : ", ", key);
  }
  return {ErrorCode::invalid_argument,
          fmt::format("it is not in partition {:#06x} (EngineOptions::rdma.partition), only in {}", options_.partition,
                      found)};
}

void Port::describe(const VerbsOptions& options) {
  const std::string folder = has_.context->device->ibdev_path;
  device_.bytes_per_second = bytes_per_second(has_.state.speed, has_.state.width);
  device_.capabilities = capabilities(has_.limits, has_.state, iwarp());
  const std::string port_folder = folder + "/ports/" + std::to_string(number_);
  has_.legs = legs_of(port_folder, has_.gid_index, has_.bond);
  has_.address.uses_cm = iwarp() || (options_.connection_manager && has_.address.fabric == Fabric::roce);
  has_.address.no_immediates = iwarp() || !options.immediates.value_or(true);
  has_.address.queue_pairs = options_.queue_pairs == 0 ? has_.legs : static_cast<std::uint8_t>(options_.queue_pairs);
  device_.moved_by = MovedBy::nic;
  std::error_code ignored;
  has_.hardware = std::filesystem::exists(folder + "/device", ignored);
  // iWARP completes a request once TCP has it, in hardware and in software.
  has_.read_back = iwarp() || options.read_back.value_or(has_.hardware);
}

Status Port::refusal(const std::string& what, int error) const {
  const std::string text = "verbs: " + device_.name + ": " + what + ": " + system_text(error);
  if (error != ENOMEM && error != EAGAIN) return {ErrorCode::system_error, text};
  return {ErrorCode::resource_exhausted,
          text + ": raise the limit of locked memory (ulimit -l, LimitMEMLOCK=), or rdma.max of the cgroup"};
}

// Of a device that was removed, the kernel has ended everything, and answers EIO.
Status Port::not_ended(const char* call, int error) const {
  if (error == 0 || ((error == EIO || error == ENODEV) && failed())) return {};
  return {ErrorCode::not_fenced,
          "verbs: " + device_.name + ": the NIC may still reach memory: " + call + ": " + system_text(error)};
}

Time Port::drain_deadline(Time now) const {
  return failed() || now < no_drain_before_ ? now : after(now, kDrainTimeout);
}

void Port::drained_nothing(Time now) {
  no_drain_before_ = after(now, kDrainPause);
}

std::uint8_t Port::mtu() const {
  const int most = std::clamp(has_.state.active_mtu, 1, 5);
  const int wanted = options_.mtu == 0 ? most : std::countr_zero(options_.mtu / 128);
  return static_cast<std::uint8_t>(std::min(most, wanted));
}

Status Port::refresh() {
  const auto no = [&](const std::string& why) {
    return Status(ErrorCode::link_failed, "verbs: " + device_.name + ": " + why);
  };
  if (!lost_.empty()) return no(lost_);
  abi::PortState now{};
  if (library_->query_port(has_.context, number_, &now) != 0 || now.state != abi::kPortActive)
    return no("the port is not active");
  if (fabric_of(now) != has_.address.fabric)
    return no("the port was switched between InfiniBand and Ethernet: open the engine again");
  has_.state = now;
  if (iwarp()) return {};  // rdma_cm reports changes of iWARP addresses
  if (const Status status = choose_partition(); !status) return no(status.message());
  const std::string was = text_of(has_.address);
  const Status status = choose_address({});
  return status ? Status() : no("its address " + was + " is gone, and " + status.message());
}

bool Port::has_address() const {
  if (iwarp()) return true;
  if (has_.address.fabric == Fabric::infiniband) {
    // Not for RoCE: soft-RoCE's query takes a lock that is held while its interface is being taken down.
    abi::PortState now{};
    if (library_->query_port(has_.context, number_, &now) != 0 || now.lid != has_.address.lid) return false;
  }
  std::vector<GidEntry> entries;
  return read_gids(entries) && std::any_of(entries.begin(), entries.end(), [&](const GidEntry& each) {
           return each.index == has_.gid_index && each.gid == has_.address.gid;
         });
}

void Port::drain_channel() {
  abi::CompletionQueue* queue = nullptr;
  void* user = nullptr;
  while (library_->get_event(has_.channel, &queue, &user) == 0) library_->acknowledge(queue, 1);
}

std::string Port::poll_async_events() {
  std::string happened;
  bool readdressed = false, repartitioned = false;
  abi::AsyncEvent event{};
  while (library_->get_async_event(has_.context, &event) == 0) {
    const bool here = event.element.port == number_;  // valid for port events
    if (event.type == abi::kEventDeviceFatal) lose(happened = "the device failed or was removed");
    if (event.type == abi::kEventQueueError) happened = "one of its completion queues failed";
    if (event.type == abi::kEventPortError && here) happened = "the port went down";
    readdressed |= (event.type == abi::kEventGidChange || event.type == abi::kEventLidChange) && here;
    repartitioned |= event.type == abi::kEventPartitionChange && here;
    library_->acknowledge_async(&event);  // queue pair events are ignored: completions show them too
  }
  if (happened.empty() && readdressed && !has_address()) happened = "its address " + text_of(has_.address) + " is gone";
  if (happened.empty() && repartitioned && partition_at(has_.pkey_index) != has_.partition)
    happened = fmt::format("the subnet manager has taken partition {:#06x} from index {} of its table", has_.partition,
                           has_.pkey_index);
  return happened;
}

// Regions need paging for writes and reads, and for atomics if the NIC executes them.
unsigned Port::missing_paging(bool atomics) const {
  const unsigned needed = abi::kPagesWrites | abi::kPagesReads | (atomics ? unsigned{abi::kPagesAtomics} : 0);
  return (has_.paging.general & abi::kPages) == 0 ? needed : needed & ~has_.paging.reliable;
}

std::string Port::why_no_pages(bool atomics) const {
  const unsigned missing = missing_paging(atomics);
  if (missing == 0) return "the kernel refused it";
  if ((has_.paging.general & abi::kPages) == 0) return "the device has no on-demand paging";
  std::string names;
  for (const auto& [bit, name] : {std::pair<unsigned, const char*>{abi::kPagesWrites, "writes"},
                                  {abi::kPagesReads, "reads"},
                                  {abi::kPagesAtomics, "atomics"}})
    if ((missing & bit) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  return "the device has no on-demand paging for " + names + " of reliable queue pairs";
}

abi::MemoryRegion* Port::register_memory(void* address, std::size_t size, int access, bool relaxed) const {
  if (relaxed && library_->register_optional != nullptr) {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    const auto flags = static_cast<unsigned>(access | abi::kRelaxedOrdering);
    if (auto* region = library_->register_optional(has_.domain, address, size, place, flags)) return region;
  }
  return library_->register_region(has_.domain, address, size, access);
}

}  // namespace fairway::transport::verbs
