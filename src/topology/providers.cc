#include "topology/providers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#ifdef FAIRWAY_HAVE_FABRIC
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "sys/libfabric.h"
#endif

namespace fairway::topology {

#ifdef FAIRWAY_HAVE_FABRIC
namespace {

struct Bit {
  std::uint64_t bit;
  const char* name;
};
constexpr std::array kDoes{Bit{FI_MSG, "messages"},        Bit{FI_TAGGED, "tags"},
                           Bit{FI_RMA, "one-sided"},       Bit{FI_ATOMIC, "atomics"},
                           Bit{FI_HMEM, "GPU memory"},     Bit{FI_MULTI_RECV, "multi-receive"},
                           Bit{FI_RMA_EVENT, "rma events"}};
constexpr std::array kModes{Bit{FI_MR_LOCAL, "local"},
                            Bit{FI_MR_VIRT_ADDR, "virt_addr"},
                            Bit{FI_MR_ALLOCATED, "allocated"},
                            Bit{FI_MR_PROV_KEY, "prov_key"},
                            Bit{FI_MR_RAW, "raw"},
                            Bit{FI_MR_ENDPOINT, "endpoint"},
                            Bit{FI_MR_HMEM, "hmem"},
                            Bit{FI_MR_RMA_EVENT, "rma_event"}};

template <std::size_t N>
std::vector<std::string> names(const std::array<Bit, N>& bits, std::uint64_t value) {
  std::vector<std::string> out;
  for (const Bit& each : bits)
    if ((value & each.bit) != 0) out.emplace_back(each.name);
  return out;
}

std::string version_text(std::uint32_t version) {
  return fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
}

std::string endpoint_name(fi_ep_type type) {
  if (type == FI_EP_RDM) return "RDM";
  if (type == FI_EP_DGRAM) return "DGRAM";
  return type == FI_EP_MSG ? "MSG" : "other";
}

ProviderRow row_of(const fi_info& info) {
  ProviderRow row;
  row.provider = info.fabric_attr->prov_name;
  row.version = version_text(info.fabric_attr->prov_version);
  row.endpoint = endpoint_name(info.ep_attr->type);
  row.does = names(kDoes, info.caps);
  row.memory_modes = names(kModes, static_cast<std::uint64_t>(info.domain_attr->mr_mode));
  row.progress = info.domain_attr->data_progress == FI_PROGRESS_AUTO ? "auto" : "manual";
  row.ordered = (info.tx_attr->msg_order & FI_ORDER_SAS) != 0;
  row.inject_bytes = info.tx_attr->inject_size;
  row.most_bytes = info.ep_attr->max_msg_size;
  row.sends = info.tx_attr->size;
  row.receives = info.rx_attr->size;
  row.pieces = info.tx_attr->iov_limit;
  row.places = info.tx_attr->rma_iov_limit;
  row.immediate_bytes = info.domain_attr->cq_data_size;
  row.key_bytes = info.domain_attr->mr_key_size;
  row.endpoints = info.domain_attr->ep_cnt;
  if (info.nic != nullptr && info.nic->link_attr != nullptr) row.bits_per_second = info.nic->link_attr->speed;
  row.usual = std::ranges::find(sys::kNicProviders, row.provider) != sys::kNicProviders.end() &&
              row.endpoint == "RDM" && (info.fabric_attr->name == nullptr || info.fabric_attr->name != sys::kEfaDirect);
  return row;
}

bool alike(const ProviderRow& a, const ProviderRow& b) {
  return a.provider == b.provider && a.version == b.version && a.endpoint == b.endpoint && a.does == b.does &&
         a.memory_modes == b.memory_modes && a.progress == b.progress && a.ordered == b.ordered &&
         a.inject_bytes == b.inject_bytes && a.most_bytes == b.most_bytes && a.sends == b.sends &&
         a.receives == b.receives && a.pieces == b.pieces && a.places == b.places &&
         a.immediate_bytes == b.immediate_bytes && a.key_bytes == b.key_bytes && a.bits_per_second == b.bits_per_second;
}

}  // namespace

std::vector<ProviderRow> provider_rows(const fi_info* answers) {
  std::vector<ProviderRow> rows;
  for (const fi_info* info = answers; info != nullptr; info = info->next) {
    ProviderRow row = row_of(*info);
    auto known = std::ranges::find_if(rows, [&](const ProviderRow& each) { return alike(each, row); });
    if (known == rows.end()) known = rows.insert(rows.end(), std::move(row));
    const std::string domain = info->domain_attr->name == nullptr ? "" : info->domain_attr->name;
    if (std::ranges::find(known->domains, domain) == known->domains.end()) known->domains.push_back(domain);
  }
  return rows;
}

Result<Providers> providers() {
  auto library = sys::Libfabric::open();
  if (!library) return library.status();
  Providers out{(*library)->path, version_text((*library)->version()), {}, sys::Libfabric::filter_text()};
  fi_info* hints = (*library)->dupinfo(nullptr);
  if (hints == nullptr) return Status(ErrorCode::resource_exhausted, "fi_dupinfo: no memory");
  hints->mode = ~std::uint64_t{0};
  hints->domain_attr->mode = ~std::uint64_t{0};
  hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
  fi_info* answers = nullptr;
  const int result =
      (*library)->getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, &answers);
  (*library)->freeinfo(hints);
  if (result != 0 && result != -FI_ENODATA)
    return Status(ErrorCode::system_error, "fi_getinfo: " + (*library)->text(result));
  out.rows = provider_rows(answers);
  if (answers != nullptr) (*library)->freeinfo(answers);
  return out;
}

#else

Result<Providers> providers() {
  return Status(ErrorCode::unsupported, "this build is without libfabric: install libfabric-dev and build again");
}

#endif

namespace {

std::string rate_text(std::uint64_t bits) {
  return bits == 0 ? std::string() : fmt::format(" of {:.0f} Gb/s", static_cast<double>(bits) / 1e9);
}

std::string size_text(std::uint64_t bytes) {
  return bytes > (std::uint64_t{1} << 40) ? "any length" : fmt::format("up to {} B", bytes);
}

std::string domains_text(const std::vector<std::string>& domains) {
  constexpr std::size_t kShown = 4;
  const auto end = domains.begin() + static_cast<std::ptrdiff_t>(std::min(domains.size(), kShown));
  return fmt::format("{}{}", fmt::join(domains.begin(), end, ", "),
                     domains.size() > kShown ? fmt::format(", ... {}", domains.back()) : "");
}

}  // namespace

std::string providers_text(const Providers& providers) {
  std::string out = fmt::format("libfabric {} ({})\n", providers.version, providers.library);
  if (!providers.filter.empty()) out += providers.filter + "\n";
  if (providers.rows.empty()) out += "no provider has anything here\n";
  for (const ProviderRow& row : providers.rows) {
    out += fmt::format("\n{} {}  {}  {} domain{}{}: {}\n", row.provider, row.version, row.endpoint, row.domains.size(),
                       row.domains.size() == 1 ? "" : "s", rate_text(row.bits_per_second), domains_text(row.domains));
    out += fmt::format("  does      {}\n  order     {}; {} progress\n", fmt::join(row.does, ", "),
                       row.ordered ? "messages in order" : "nothing in order", row.progress);
    out += fmt::format(
        "  memory    {}; keys of {} B\n",
        row.memory_modes.empty() ? std::string("as it is") : fmt::format("{}", fmt::join(row.memory_modes, ", ")),
        row.key_bytes);
    out += fmt::format("  sizes     {}; inject {} B, immediate {} B; {} pieces to {} places\n",
                       size_text(row.most_bytes), row.inject_bytes, row.immediate_bytes, row.pieces, row.places);
    out += fmt::format("  queues    {} sends, {} receives\n", row.sends, row.receives);
    if (row.usual) out += "  used      by the transport fabric, without being told to\n";
  }
  return out;
}

std::string json(const Providers& providers) {
  std::string out = fmt::format(
      "{{\"format\": \"fairway-providers\", \"version\": 1, \"libfabric\": {:?}, \"library\": {:?}, "
      "\"filter\": {:?}, \"rows\": [",
      providers.version, providers.library, providers.filter);
  for (std::size_t i = 0; i < providers.rows.size(); ++i) {
    const ProviderRow& row = providers.rows[i];
    out += fmt::format(
        "{}\n  {{\"provider\": {:?}, \"version\": {:?}, \"endpoint\": {:?}, \"does\": {}, \"memory_modes\": {}, "
        "\"progress\": {:?}, \"ordered\": {}, \"inject_bytes\": {}, \"most_bytes\": {}, \"sends\": {}, \"receives\": "
        "{}, "
        "\"pieces\": {}, \"places\": {}, \"immediate_bytes\": {}, \"key_bytes\": {}, \"endpoints\": {}, "
        "\"bits_per_second\": {}, \"usual\": {}, \"domains\": {}}}",
        i == 0 ? "" : ",", row.provider, row.version, row.endpoint, row.does, row.memory_modes, row.progress,
        row.ordered, row.inject_bytes, row.most_bytes, row.sends, row.receives, row.pieces, row.places,
        row.immediate_bytes, row.key_bytes, row.endpoints,
        row.bits_per_second == 0 ? "null" : fmt::format("{}", row.bits_per_second), row.usual, row.domains);
  }
  return out + "\n]}\n";
}

}  // namespace fairway::topology
