#include <algorithm>

#include "topology/output.h"
#include "topology/path_class.h"
#include "topology/text.h"

// Which lines belong to an output though no output is known by them.
namespace fairway::topology {
namespace {

using Kind = OutputKind;

// A row of a matrix, its legend, or why there is none.
bool is_of_matrix(std::string_view line) {
  const auto parts = text::words(line);
  if (parts[0].starts_with("GPU") || parts[0].starts_with("NIC") || parts[0].starts_with("Legend")) return true;
  if (parts.size() > 1 && PathClass::parse(parts[1])) return true;
  // "SYS  = Connection traversing ..."
  const auto is_name = [](char c) { return (c >= 'A' && c <= 'Z') || c == '#'; };
  if (parts.size() > 1 && parts[1] == "=" && std::all_of(parts[0].begin(), parts[0].end(), is_name)) return true;
  return is_failure(line);
}

}  // namespace

bool may_hold(Kind kind, std::string_view line, bool after_blank) {
  const bool indented = line.front() == ' ' || line.front() == '\t';
  const auto starts = [&](std::string_view word) { return line.starts_with(word); };
  switch (kind) {
    case Kind::environment:
    case Kind::sysctl:
    case Kind::ip_brief:
    case Kind::ibdev2netdev:
    case Kind::iommu_types:
    case Kind::ucx_log:
    case Kind::sysfs_files:
    case Kind::cmdline:
    case Kind::uname: return false;
    case Kind::fabric_manager:
    case Kind::ibv_devices:
    case Kind::rdma_link:
    case Kind::rdma_statistic: return indented;
    case Kind::perfquery: return line.find(":...") != line.npos || starts("# ");
    // A paste may have lost what stands before its lines.
    case Kind::lspci:
    case Kind::ibstat:
    case Kind::ibstatus:
    case Kind::ibv_devinfo:
    case Kind::ethtool:
    case Kind::ethtool_statistics: return indented || !after_blank || line.substr(0, 60).find(':') != line.npos;
    case Kind::nvlink: return indented || starts("Link ") || starts("NVML: ");
    case Kind::ip_link:
      return indented || starts("link/") || starts("inet") || starts("altname") || starts("valid_lft");
    case Kind::npu_smi: return starts("|") || starts("+");
    case Kind::smi_query:
      return line == "--" || indented || starts("GPU ") || starts("=====") || line.find(" : ") != line.npos;
    case Kind::smi_table: return indented || starts("|") || starts("+") || !after_blank;
    case Kind::numactl: return indented || starts("node");
    case Kind::sysfs_links: return starts("total ") || starts("/") || starts("l") || starts("d") || starts("-");
    case Kind::iblinkinfo: return indented || starts("CA: ") || starts("Switch: ") || starts("Router: ");
    case Kind::ibnetdiscover:
      return starts("#") || starts("[") || starts("Switch") || starts("Ca") || starts("Non-Chassis") ||
             starts("Chassis") || line.find("guid=") != line.npos || line.find("id=0x") != line.npos;
    case Kind::mlxlink: return indented || line.find(':') != line.npos || starts("----") || line.ends_with(" Info");
    case Kind::amd_smi: return indented || line.find(':') != line.npos;
    case Kind::lscpu:
    case Kind::meminfo: return line.find(':') != line.npos;
    case Kind::bonding:
      return line.find(':') != line.npos || line.starts_with("802.3ad") || line.starts_with("details");
    case Kind::disk_free: return line.find('%') != line.npos;
    case Kind::modules: {
      const auto parts = text::words(line);
      return parts.size() > 2 && text::to_unsigned(parts[1]);
    }
    case Kind::topo_matrix:
    case Kind::topo_peers: return indented || is_of_matrix(line);
    case Kind::collect_env:
      return indented || line.find(':') != line.npos || line.find("==") != line.npos || starts("[");
    default: {
      // What programs that measure print between their rows is their readers' own.
      if (is_measurement(kind) || !after_blank || indented) return true;
      const char first = line.front();
      const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
      return !letter || starts("GPU") || line.find_first_of(":=,") != line.npos;
    }
  }
}

}  // namespace fairway::topology
