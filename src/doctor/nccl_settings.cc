#include "doctor/nccl_settings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "topology/text.h"

namespace fairway::doctor {

namespace text = topology::text;
using topology::PathKind;

namespace {

// NCCL's releases 2.7.3 to 2.30.7, read tag by tag: "since" names the first with the line.
constexpr auto kSettings = std::to_array<NcclSetting>({
    {"NCCL_IB_HCA",
     "names of RDMA devices, each with an optional :port; they are prefixes, unless the list begins with =; ^ excludes",
     "every device", "ports that are not ACTIVE or neither InfiniBand nor Ethernet, and what is beyond 32 entries",
     "net_ib init (ncclIbInitDevices), misc/utils.cc matchIfList"},
    {"NCCL_IB_DISABLE", "1: no RDMA, sockets instead", "0", "", "net_ib (ncclIbInit: ncclParamIbDisable)"},
    {"NCCL_NET", "the transport between hosts by name, in any case: IB, Socket, or a plug-in's",
     "the first that has devices", "", "plugin/net.cc (ncclNetInit: strcasecmp)"},
    {"NCCL_IB_GID_INDEX", "the index of the GID; below 0 NCCL chooses",
     "-1 since 2.21: NCCL chooses a routable RoCE v2 address; 0 before", "",
     "net_ib connect (IbGidIndex, ncclIbGetGidIndex)"},
    {"NCCL_IB_TC", "the traffic class of its queue pairs, 0 to 255",
     "-1 since 2.26: the communicator's, else 0; 0 before", "", "net_ib connect (IbTc)"},
    {"NCCL_IB_QPS_PER_CONNECTION", "queue pairs of one connection", "1", "", "net_ib connect (IbQpsPerConn)"},
    {"NCCL_NET_GDR_LEVEL",
     "the farthest GPU and NIC that use GPUDirect RDMA: LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS; by number 0 "
     "LOC, 1 PIX, 2 PXB, 3 PHB, 4 and above SYS",
     "PXB; with NVLink-C2C also the NICs of the GPU's own CPU (P2C, since 2.27)",
     "words that it does not know, NODE too: it then takes the default",
     "graph/paths.cc (ncclGetLevel, levelsOldToNew, ncclTopoCheckGdr)"},
    {"NCCL_NET_GDR_C2C", "1: GPUDirect RDMA to the NICs of the GPU's CPU by NVLink-C2C", "1 since 2.27, 0 in 2.26",
     "machines without NVLink-C2C", "graph/paths.cc (NetGdrC2c)"},
    {"NCCL_CROSS_NIC",
     "0: a ring enters and leaves each host by one NIC; 1: by different ones; 2: the same one where it can", "2", "",
     "graph/search.cc (CrossNic)"},
    {"NCCL_PXN_DISABLE", "1: no relay by NVLink over a GPU near the NIC", "0, since 2.12", "",
     "graph/paths.cc (PxnDisable)"},
    {"NCCL_SOCKET_IFNAME", "names of interfaces, prefixes unless the list begins with =; ^ excludes",
     "those named ib*, else any but docker*, lo and virbr*, else those too", "interfaces without an address",
     "misc/socket.cc (ncclFindInterfaces)"},
    {"NCCL_TOPO_FILE", "a topology file, read in place of the machine", "what the machine says", "",
     "graph/topo.cc (ncclTopoGetSystem)"},
});

constexpr std::size_t kMostDevices = 32;  // MAX_IB_DEVS

// topoPathTypeStr of graph/topo.cc, each with the farthest of nvidia-smi's classes that it includes. PHB includes NODE:
// NCCL has no host bridges.
constexpr auto kLevels = std::to_array<std::pair<std::string_view, PathKind>>({{"LOC", PathKind::self},
                                                                               {"NVL", PathKind::nvlink},
                                                                               {"NVB", PathKind::nvlink},
                                                                               {"C2C", PathKind::nvlink},
                                                                               {"PIX", PathKind::pix},
                                                                               {"PXB", PathKind::pxb},
                                                                               {"P2C", PathKind::pxb},
                                                                               {"PXN", PathKind::pxb},
                                                                               {"PHB", PathKind::node},
                                                                               {"SYS", PathKind::sys}});
// levelsOldToNew.
constexpr std::array kOldLevels = {PathKind::self, PathKind::pix, PathKind::pxb,
                                   PathKind::node, PathKind::sys, PathKind::sys};

}  // namespace

std::span<const NcclSetting> nccl_settings() {
  return kSettings;
}

std::int64_t nccl_number(std::string_view value) {
  const std::string terminated(value);
  errno = 0;
  const auto number = std::strtoll(terminated.c_str(), nullptr, 0);
  return errno == 0 ? number : 0;
}

std::optional<PathKind> nccl_level(std::string_view value) {
  for (const auto& [word, kind] : kLevels) {
    if (word == value) return kind;
  }
  if (value.empty() || value.front() < '0' || value.front() > '9') return {};
  const auto old = std::min<std::int64_t>(nccl_number(value), kOldLevels.size() - 1);
  return kOldLevels[static_cast<std::size_t>(std::max<std::int64_t>(old, 0))];
}

std::optional<std::uint32_t> nccl_gid_index(std::string_view value) {
  const auto index = nccl_number(value);
  return index < 0 || index > 0xffff ? std::nullopt : std::optional(static_cast<std::uint32_t>(index));
}

NcclDevices nccl_devices(std::string_view value) {
  NcclDevices devices;
  devices.excludes = value.starts_with('^');
  if (devices.excludes) value.remove_prefix(1);
  devices.exact = value.starts_with('=');
  if (devices.exact) value.remove_prefix(1);
  for (const auto word : text::split(value, ',')) {
    const auto parts = text::split(word, ':');
    if (parts.empty() || parts.front().empty() || devices.entries.size() >= kMostDevices) continue;
    NcclDevices::Entry entry{std::string(parts.front()), {}};
    if (parts.size() > 1 && !parts[1].empty()) entry.port = text::to_u32(parts[1]);
    devices.entries.push_back(std::move(entry));
  }
  return devices;
}

bool NcclDevices::names(const Entry& entry, std::string_view device, std::uint32_t port) const {
  const bool named = exact ? device == entry.name : device.starts_with(entry.name);
  return named && (!entry.port || *entry.port == port);
}

bool NcclDevices::allows(std::string_view device, std::uint32_t port) const {
  if (entries.empty()) return true;
  const bool listed =
      std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) { return names(entry, device, port); });
  return listed != excludes;
}

std::string nccl_settings_page() {
  std::string out =
      "\n# What NCCL makes of its variables\n\n"
      "The rules take each variable as NCCL's own source does, in its releases from 2.7 to 2.30.\n\n"
      "| Variable | Values | Unset | Ignored | Source |\n|---|---|---|---|---|\n";
  for (const auto& one : kSettings) {
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", one.name, one.means, one.unset,
                       one.ignores.empty() ? "-" : one.ignores, one.source);
  }
  return out;
}

}  // namespace fairway::doctor
