#include "doctor/nccl_settings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/output.h"
#include "topology/text.h"

// NCCL's settings, and what communication libraries say of themselves.
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
    auto& entry = devices.entries.emplace_back(NcclDevices::Entry{std::string(parts.front()), {}});
    if (parts.size() > 1 && !parts[1].empty()) entry.port = text::to_u32(parts[1]);
  }
  return devices;
}

bool NcclDevices::names(const Entry& entry, std::string_view device, std::uint32_t port) const {
  const bool named = exact ? device == entry.name : device.starts_with(entry.name);
  return named && (!entry.port || *entry.port == port);
}

bool NcclDevices::allows(std::string_view device, std::uint32_t port) const {
  if (entries.empty()) return true;
  const bool listed = std::ranges::any_of(entries, [&](const Entry& entry) { return names(entry, device, port); });
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

// ---- NCCL's log, ucx_info, fi_info ----

namespace {

using topology::Output;

std::string joined(const std::set<std::string>& words, std::size_t limit = 8) {
  std::string out;
  std::size_t shown = 0;
  for (const auto& word : words) {
    if (++shown > limit) return out + " ...";
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

class NcclLog {
 public:
  NcclLog(const Output& output, const Gathered& to) : output_(output), to_(to) {}

  std::string read() {
    for (const auto line : text::lines(output_.text)) {
      ++number_;
      // "node-0:211:290 [0] misc/socket.cc:538 NCCL WARN": the file is no part of the rank.
      const auto head = line.substr(0, std::min(line.find(" NCCL "), line.size()));
      ranks_.insert(std::string(head.substr(0, head.rfind(']') + 1)));
      const auto at = line.find(" NCCL INFO ");
      if (line.starts_with("NCCL version ")) set("nccl.version", text::words(line)[2]);
      if (at != line.npos) read_info(line.substr(at + 11));
      if (const auto warn = line.find(" NCCL WARN "); warn != line.npos) read_warning(line.substr(warn + 11));
    }
    return sum();
  }

 private:
  void set(const std::string& name, std::string_view value) {
    to_.facts.set(name, text::quote(value, 300), output_.at(number_));
  }

  void read_info(std::string_view words) {
    const auto has = [words](std::string_view part) { return words.find(part) != words.npos; };
    if (words.starts_with("Using network ")) {
      network_ = std::string(text::trim(words.substr(14)));
      set("nccl.network", network_);
    } else if (has("NET/IB : No device found")) {
      set("nccl.no_ib_device", words);
      no_device_ = true;
    } else if (has("NET/IB : Using ")) {
      set("nccl.net_ib", words.substr(words.find("Using ") + 6));
    } else if (const auto direct = words.find("GPU Direct RDMA "); direct != words.npos) {
      read_gpu_direct(words.substr(direct));
    } else if (words.starts_with("Channel ") && has(" via ")) {
      read_channel(words);
    } else if (has(" set by environment to ")) {
      // "NCCL_IB_HCA set by environment to mlx5."
      auto value = text::trim(words.substr(words.find(" set by environment to ") + 23));
      if (value.ends_with('.')) value.remove_suffix(1);
      const auto name = text::words(words).front();
      if (name.starts_with("NCCL_")) set("env." + text::quote(name), value);
    } else if (has("NCCL version ")) {
      set("nccl.version", text::words(words.substr(words.find("NCCL version ") + 13)).front());
    }
  }

  // "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 5 > 4)"; "NET/IB : GPU Direct RDMA Disabled for HCA 0
  // 'mlx5_0'", which each rank says of the whole NIC
  void read_gpu_direct(std::string_view words) {
    const auto all = text::words(words);
    const bool off = all.size() > 3 && all[3] == "Disabled";
    if (all.size() > 6 && all[5] == "HCA") {
      const auto nic = text::quote(all[all.size() > 7 ? 7 : 6]);
      if (off) set("nccl.gdr_off_nic." + nic, words);
      if (off) off_nics_.insert(nic);
      return;
    }
    if (all.size() < 10) return;
    ++(off ? direct_off_ : direct_on_);
    if (off) set(fmt::format("nccl.gdr_off.{}.{}", text::quote(all[6]), text::quote(all[9])), words);
  }

  // "Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0/GDRDMA"
  void read_channel(std::string_view words) {
    const auto via = text::trim(words.substr(words.find(" via ") + 5));
    const auto parts = text::split(text::words(via).front(), '/');
    auto way = std::string(parts[0]);
    if (parts[0] == "NET" && parts.size() > 1) way += "/" + std::string(parts[1]);
    ++channels_[text::quote(way)];
    if (parts[0] != "NET") return;
    ++network_channels_;
    if (via.find("/GDRDMA") != via.npos) ++direct_channels_;
    if (parts.size() > 2) nics_.insert(text::quote(parts[2]));
  }

  void read_warning(std::string_view words) {
    set(fmt::format("nccl.warning.{}", ++warnings_), words);
    if (first_warning_.empty()) first_warning_ = text::quote(words, 90);
  }

  std::string sum() {
    std::string gave = fmt::format("{} rank{}", ranks_.size(), ranks_.size() == 1 ? "" : "s");
    if (!network_.empty()) gave += ", network " + text::quote(network_);
    if (no_device_) gave += ", no InfiniBand device found";
    for (const auto& [way, count] : channels_) {
      gave += fmt::format(", {} channels {}", count, way);
      to_.facts.set("nccl.channels." + way, std::to_string(count), output_.at(1));
    }
    if (network_channels_ > 0) {
      gave += fmt::format(" ({} of {} by GPUDirect)", direct_channels_, network_channels_);
      to_.facts.set("nccl.network_channels", std::to_string(network_channels_), output_.at(1));
      to_.facts.set("nccl.gdr_channels", std::to_string(direct_channels_), output_.at(1));
    }
    if (direct_off_ > 0) gave += fmt::format(", GPUDirect RDMA disabled for {} pairs", direct_off_);
    if (direct_on_ + direct_off_ > 0) to_.facts.set("nccl.gdr_off", std::to_string(direct_off_), output_.at(1));
    if (!off_nics_.empty())
      gave += fmt::format(", GPUDirect RDMA disabled for {}", text::count(off_nics_.size(), "NIC"));
    if (warnings_ > 0) gave += fmt::format(", {} warning{}: {}", warnings_, warnings_ == 1 ? "" : "s", first_warning_);
    return gave;
  }

  const Output& output_;
  const Gathered& to_;
  std::size_t number_ = 0;
  std::set<std::string> ranks_;
  std::set<std::string> nics_;
  std::set<std::string> off_nics_;  // without GPUDirect RDMA
  std::map<std::string, std::size_t> channels_;
  std::string network_;
  std::string first_warning_;
  bool no_device_ = false;
  std::size_t network_channels_ = 0;
  std::size_t direct_channels_ = 0;
  std::size_t direct_off_ = 0;
  std::size_t direct_on_ = 0;
  std::size_t warnings_ = 0;
};

}  // namespace

std::string read_nccl_log(const Output& output, const Gathered& to) {
  return NcclLog(output, to).read();
}

// "[1700000000.123456] [node1:2211:0]  ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded ..."
std::string read_ucx_log(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  std::size_t complaints = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto at = line.find(" UCX  ");
    if (at == line.npos) continue;
    const auto words = text::trim(line.substr(at + 6));
    for (const auto& one : topology::job_variables(words))
      to.facts.set("env." + text::quote(one.name), text::quote(one.value, 400), output.at(number));
    if (!words.starts_with("WARN") && !words.starts_with("ERROR") && !words.starts_with("FATAL")) continue;
    to.facts.set(fmt::format("ucx.warning.{:06}", ++complaints), text::quote(text::trim(words.substr(5)), 300),
                 output.at(number));
  }
  return fmt::format("{}, {}", text::count(number, "line"), text::count(complaints, "complaint"));
}

// systemctl's "     Active: inactive (dead)"
std::string read_fabric_manager(const Output& output, const Gathered& to) {
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto words = text::trim(line);
    if (!words.starts_with("Active: ")) continue;
    const auto state = text::quote(words.substr(8), 80);
    to.facts.set("fabric_manager.state", state, output.at(number));
    return state;
  }
  return {};
}

// "#      Transport: rc_mlx5" and "#         Device: mlx5_0:1"
std::string read_ucx_info(const Output& output, const Gathered& to) {
  std::set<std::string> transports;
  std::set<std::string> devices;
  for (auto line : text::lines(output.text)) {
    while (!line.empty() && (line.front() == '#' || line.front() == ' ')) line.remove_prefix(1);
    const auto words = text::words(line);
    if (words.size() < 2) continue;
    if (words[0] == "Transport:") transports.insert(text::quote(words[1]));
    if (words[0] == "Device:") devices.insert(text::quote(words[1]));
    if (words[0] == "Library" && words[1] == "version:" && words.size() > 2)
      to.facts.set("ucx.version", text::quote(words[2]), output.at(1));
  }
  const auto* version = to.facts.find("ucx.version");
  if (transports.empty()) return version == nullptr ? std::string() : "version " + version->value;
  to.facts.set("ucx.transports", joined(transports, 64), output.at(1));
  to.facts.set("ucx.devices", joined(devices, 64), output.at(1));
  return "transports " + joined(transports);
}

// "provider: efa"
std::string read_fi_info(const Output& output, const Gathered& to) {
  std::set<std::string> providers;
  for (const auto line : text::lines(output.text)) {
    const auto trimmed = text::trim(line);
    if (trimmed.starts_with("provider: ")) providers.insert(text::quote(text::trim(trimmed.substr(10))));
  }
  if (providers.empty()) return {};
  to.facts.set("fabric.providers", joined(providers, 64), output.at(1));
  return "providers " + joined(providers);
}

}  // namespace fairway::doctor
