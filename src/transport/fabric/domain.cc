#include "transport/fabric/domain.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

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

}  // namespace fairway::transport::fabric
