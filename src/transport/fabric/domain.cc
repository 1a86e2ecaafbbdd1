#include "transport/fabric/domain.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "transport/command.h"
#include "transport/fabric/lane.h"

namespace fairway::transport::fabric {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
// Over sockets: a sender of more at once sees acknowledgements late, and a fast reader then waits for half of a read of
// 1 MiB (docs/GOTCHAS.md).
constexpr std::uint64_t kMostSocketBytes = std::uint64_t{512} << 10;
constexpr std::size_t kMostPieces = 8;

// Whether no NIC of libfabric's own is here. Checked before libfabric loads all providers, which takes 0.1 s.
bool no_nics() {
  for (const char* folder :
       {"/sys/class/infiniband", "/sys/class/cxi", "/sys/class/cxi_user", "/sys/class/hfi1", "/sys/class/infinipath"}) {
    std::error_code error;
    if (!std::filesystem::is_empty(folder, error) && !error) return false;
  }
  return true;
}

Capabilities capabilities(const Domain& domain, const HintSet& wanted) {
  Capabilities can;
  can.operations = bits(Op::message);
  if (wanted.rma) can.operations = bits(can.operations, Op::write, Op::read, Op::write_immediate);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  can.needs_keys = true;
  if (domain.moves_gpu_memory())
    can.memory_kinds = static_cast<std::uint8_t>(can.memory_kinds | 1 << static_cast<unsigned>(MemoryKind::device));
  can.queue_depth = kQueueDepth;
  // Assumes no order of completions and arrivals: EFA delivers in any order.
  can.ordered = false;
  can.visible_when_done = wanted.delivery;
  return can;
}

}  // namespace

Domain::Domain(std::shared_ptr<const Calls> calls, const fi_info& info, const HintSet& wanted, std::size_t index)
    : calls_(std::move(calls)),
      wanted_(wanted),
      index_(index),
      info_(calls_->library->dupinfo(&info), InfoCloser{calls_->library}) {}

Result<std::unique_ptr<Domain>> Domain::open(std::shared_ptr<const Calls> calls, const fi_info& info,
                                             const HintSet& wanted, std::size_t index) {
  std::unique_ptr<Domain> made(new Domain(std::move(calls), info, wanted, index));
  if (!made->info_) return Status(ErrorCode::resource_exhausted, "fabric: fi_dupinfo: no memory");
  const auto no = [&](const char* call, int result) {
    return Status(ErrorCode::unsupported, fmt::format("fabric: {}/{}: {}: {}", info.fabric_attr->prov_name,
                                                      info.domain_attr->name, call, made->text(result)));
  };
  fid_fabric* fabric = nullptr;
  if (const int result = made->calls_->library->fabric(made->info_->fabric_attr, &fabric, nullptr); result != 0)
    return no("fi_fabric", result);
  made->fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int result = ::fi_domain(fabric, made->info_.get(), &domain, reinterpret_cast<void*>(index)); result != 0)
    return no("fi_domain", result);
  made->domain_.reset(domain);
  made->describe();
  return made;
}

void Domain::describe() {
  loses_messages_ = loses_silently(*info_);
  device_.name = fmt::format("{}/{}", info_->fabric_attr->prov_name, info_->domain_attr->name);
  device_.capabilities = capabilities(*this, wanted_);
  device_.moved_by = moved_by(*info_);
  const fid_nic* nic = info_->nic;
  if (nic != nullptr && nic->link_attr != nullptr) device_.bytes_per_second = nic->link_attr->speed / 8;
}

DomainAddress Domain::address() const {
  DomainAddress own = address_of(*info_);
  if (!peer_cpu_access()) return own;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> own.host;
  return own;
}

std::uint64_t Domain::most_bytes() const {
  const bool sockets = std::string_view(info_->fabric_attr->prov_name).starts_with("tcp");
  return std::min<std::uint64_t>(info_->ep_attr->max_msg_size, sockets ? kMostSocketBytes : kMostBytes);
}

std::size_t Domain::most_gathers() const {
  return std::clamp<std::size_t>(info_->tx_attr->iov_limit, 1, kMostPieces);
}

std::size_t Domain::most_places() const {
  return std::clamp<std::size_t>(info_->tx_attr->rma_iov_limit, 1, kMostPieces);
}

bool Domain::peer_cpu_access() const {
  return std::string_view(info_->fabric_attr->prov_name) == "shm";
}

std::uint64_t Domain::requested_key(std::uint64_t random) const {
  const std::size_t bytes = info_->domain_attr->mr_key_size;
  return bytes >= 8 || bytes == 0 ? random : random & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

Result<std::vector<std::unique_ptr<Domain>>> open_domains(const FabricOptions& options) {
  std::vector<std::string> providers = options.providers;
  if (providers.empty()) {
    if (no_nics() && options.calls == nullptr)
      return Status(ErrorCode::unsupported,
                    "fabric: this machine has no NIC that only libfabric serves (EFA, Slingshot, Omni-Path): name a "
                    "provider to use others (EngineOptions::providers; in the tool: --via fabric:PROVIDER)");
    providers.assign(sys::kNicProviders.begin(), sys::kNicProviders.end());
  }
  auto calls = options.calls;
  if (!calls) {
    auto library = sys::Libfabric::open();
    if (!library) return Status(ErrorCode::unsupported, "fabric: " + library.status().message());
    calls = std::make_shared<const Calls>(Calls::of(std::move(*library)));
  }
  const std::string filter = sys::Libfabric::filter_text();
  Status why;
  std::vector<std::unique_ptr<Domain>> domains;
  for (const std::string& provider : providers) {
    for (const HintSet& wanted : hint_sets(provider)) {
      const Info hints(calls->library->dupinfo(nullptr), InfoCloser{calls->library});
      if (!hints) break;
      fill_hints(*hints, wanted);
      hints->fabric_attr->prov_name = ::strdup(provider.c_str());
      fi_info* found = nullptr;
      const int result = calls->getinfo(*calls->library, hints.get(), &found);
      const Info answers(found, InfoCloser{calls->library});
      if (result != 0) {
        why = Status(
            ErrorCode::unsupported,
            fmt::format("fabric: the provider {} has no domain here: {}; {}", provider, calls->library->text(result),
                        filter.empty() ? "`fairway topo --providers` lists what libfabric has" : filter));
        continue;
      }
      const auto chosen = usable(answers.get(), options);
      if (chosen.empty())
        why = Status(ErrorCode::unsupported, "fabric: the provider " + provider +
                                                 " has no domain with the wanted name and an address that "
                                                 "EngineOptions::listen allows");
      for (const fi_info* each : chosen) {
        if (domains.size() == kMaxPlannedDevices) break;
        auto domain = Domain::open(calls, *each, wanted, domains.size());
        if (domain)
          domains.push_back(std::move(*domain));
        else
          why = domain.status();
      }
      break;
    }
  }
  if (domains.empty()) return why;
  return domains;
}

namespace {

// ofi_rxm sizes its internal queues for FI_UNIVERSE_SIZE peers, which may exceed a device's limits. Fairway does not
// set the variable, since it affects all users of libfabric in this process.
std::string_view remedy(const Domain& domain) {
  const bool sized = std::string_view(domain.info().fabric_attr->prov_name) == "verbs;ofi_rxm";
  return sized ? ": its queues are sized for FI_UNIVERSE_SIZE peers, by default 1024: set it lower, for example to 64"
               : "";
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::make(const Domain& domain, std::uint64_t name) {
  const Sizes asked = sizes_of(domain.info());
  for (Sizes sizes = asked;;) {
    std::unique_ptr<Endpoint> made(new Endpoint(domain, sizes));
    const Refusal refusal = made->open(name);
    if (refusal.result == 0) return made;
    made.reset();
    const auto less = smaller(sizes);
    if (may_be_size(refusal.result) && less) {
      sizes = *less;
      continue;
    }
    return Status(
        ErrorCode::resource_exhausted,
        fmt::format("fabric: {}: {}: {} (requested: {}{}; the provider offers {} endpoints){}", domain.device().name,
                    refusal.call, domain.text(refusal.result), text(asked),
                    sizes == asked ? "" : ", last " + text(sizes), domain.info().domain_attr->ep_cnt, remedy(domain)));
  }
}

Endpoint::Refusal Endpoint::open(std::uint64_t name) {
  if (const Refusal refusal = open_queue(name); refusal.result != 0) return refusal;
  // A count of one, whatever FI_UNIVERSE_SIZE says, since providers size tables by it.
  fi_av_attr table{};
  table.type = domain_.info().domain_attr->av_type;
  table.count = 1;
  fid_av* addresses = nullptr;
  if (const int result = ::fi_av_open(domain_.get(), &table, &addresses, nullptr); result != 0)
    return {"fi_av_open", result};
  addresses_.reset(addresses);
  if (const Refusal refusal = open_end(name); refusal.result != 0) return refusal;
  fid_ep* const end = end_.get();
  if (const int result = ::fi_ep_bind(end, &addresses->fid, 0); result != 0) return {"fi_ep_bind", result};
  if (const int result = ::fi_ep_bind(end, &queue_->fid, FI_TRANSMIT | FI_RECV); result != 0)
    return {"fi_ep_bind", result};
  if (const int result = ::fi_enable(end); result != 0) return {"fi_enable", result};
  address_.resize(kMaxAddressBytes);
  std::size_t size = address_.size();
  if (const int result = ::fi_getname(&end->fid, address_.data(), &size); result != 0) return {"fi_getname", result};
  if (size > address_.size()) return {"fi_getname", -FI_ETOOSMALL};
  address_.resize(size);
  return {};
}

// Opens the completion queue, with a descriptor to sleep on if the provider has one.
Endpoint::Refusal Endpoint::open_queue(std::uint64_t name) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    attributes.size = sizes_.completions();
    attributes.wait_obj = wait;
    fid_cq* queue = nullptr;
    if (const int result =
            domain_.calls().open_queue(domain_.get(), &attributes, &queue, reinterpret_cast<void*>(name));
        result != 0) {
      if (wait == FI_WAIT_FD) continue;
      return {"fi_cq_open", result};
    }
    queue_.reset(queue);
    if (wait == FI_WAIT_NONE || ::fi_control(&queue->fid, FI_GETWAIT, &fd_) == 0) return {};
    fd_ = -1;  // it accepted FI_WAIT_FD but has no descriptor
    queue_.reset();
  }
  return {};
}

Endpoint::Refusal Endpoint::open_end(std::uint64_t name) {
  fi_info* info = &domain_.info();
  Info less(nullptr, InfoCloser{domain_.calls().library});
  if (sizes_ != sizes_of(*info)) {
    less.reset(domain_.calls().library->dupinfo(info));
    if (!less) return {"fi_dupinfo", -FI_ENOMEM};
    info = less.get();
    info->tx_attr->size = sizes_.operations;
    info->rx_attr->size = sizes_.receives;
  }
  fid_ep* end = nullptr;
  const int result = domain_.calls().open_end(domain_.get(), info, &end, reinterpret_cast<void*>(name));
  if (result == 0) end_.reset(end);
  return {"fi_endpoint", result};
}

// Providers read a fixed number of bytes for their address format; for text (shm), up to the terminating zero.
Status Endpoint::connect(std::span<const std::byte> theirs) {
  if (domain_.info().addr_format != FI_ADDR_STR && theirs.size() != address_.size())
    return {ErrorCode::protocol_error, "malformed fabric handshake: the address has the wrong size"};
  const std::string ended(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (const int result = ::fi_av_insert(addresses_.get(), ended.c_str(), 1, &peer_, 0, nullptr); result != 1)
    return {ErrorCode::unreachable, fmt::format("fabric: {}: fi_av_insert: {}", domain_.device().name,
                                                result < 0 ? domain_.text(result) : "invalid address")};
  return {};
}

Endpoint::Error Endpoint::take_error() const {
  fi_cq_err_entry entry{};
  const ssize_t result = ::fi_cq_readerr(queue_.get(), &entry, 0);
  if (result <= 0) return {false, nullptr, "fi_cq_readerr: " + domain_.text(result == 0 ? -FI_EAGAIN : result)};
  std::array<char, 128> words{};
  const char* detail = ::fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, words.data(), words.size());
  std::string text = domain_.calls().library->strerror(entry.err);
  if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
  return {true, entry.op_context, std::move(text)};
}

bool Endpoint::may_sleep() const {
  if (fd_ < 0) return true;  // a timer polls it
  return domain_.calls().may_sleep(domain_.fabric(), queue_.get()) == 0;
}

}  // namespace fairway::transport::fabric
