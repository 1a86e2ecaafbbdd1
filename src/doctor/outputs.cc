#include "doctor/outputs.h"

#include <algorithm>

#include <fmt/format.h>

#include "doctor/formats.h"
#include "topology/text.h"

// Each kind of output and its one reader.
namespace fairway::doctor {
namespace {

namespace text = topology::text;
using Kind = topology::OutputKind;
using OutputReader = std::string (*)(const topology::Output&, const Gathered&);

struct ReaderOf {
  Kind kind;
  OutputReader read;
};

constexpr ReaderOf kReaders[] = {
    {Kind::failure, read_failure},
    {Kind::limits, read_limits},
    {Kind::ulimit, read_ulimit},
    {Kind::cmdline, read_cmdline},
    {Kind::meminfo, read_meminfo},
    {Kind::modules, read_modules},
    {Kind::mlxconfig, read_mlxconfig},
    {Kind::qos, read_qos},
    {Kind::driver_version, read_driver_version},
    {Kind::environment, read_variables},
    {Kind::smi_query, read_smi_query},
    {Kind::smi_table, read_smi_table},
    {Kind::nvlink, read_nvlink_errors},
    {Kind::gpu_query, read_gpu_query_facts},
    {Kind::collect_env, read_collect_env},
    {Kind::lspci, read_lspci_capabilities},
    {Kind::kernel_log, read_kernel_log},
    {Kind::sysctl, read_sysctl},
    {Kind::uname, read_uname},
    {Kind::disk_free, read_disk_free},
    {Kind::iommu_types, read_iommu_types},
    {Kind::ip_link, read_ip_statistics},
    {Kind::ethtool, read_ethtool_modes},
    {Kind::ethtool_statistics, read_ethtool_statistics},
    {Kind::mlxlink, read_mlxlink_facts},
    {Kind::perfquery, read_perfquery},
    {Kind::iblinkinfo, read_iblinkinfo},
    {Kind::ibnetdiscover, read_ibnetdiscover},
    {Kind::hl_smi, read_hl_smi_errors},
    {Kind::nccl_log, read_nccl_log},
    {Kind::ucx_info, read_ucx_info},
    {Kind::ucx_log, read_ucx_log},
    {Kind::fabric_manager, read_fabric_manager},
    {Kind::fi_info, read_fi_info},
};

// Measured rates, as --measured reads them.
void read_rates(topology::Output& output, const Gathered& to) {
  if (output.kind == Kind::rows) {
    output.state = topology::ReadState::not_used;
    output.gave = "rows do not say how they were measured: give the file with --measured";
    return;
  }
  auto rows = read_rates_of(to.machine, output);
  if (!rows) return output.fail(rows.status().message());
  const auto failed = std::find_if(rows->begin(), rows->end(), [](const auto& row) { return row.failed; });
  if (failed != rows->end()) {
    output.fail(failed->problem);
  } else {
    output.read_as(fmt::format("{} measured row{}", rows->size(), rows->size() == 1 ? "" : "s"));
    if (rows->size() >= kMaxRows) output.cut = "what stands behind them is not read";
  }
  to.measured.insert(to.measured.end(), std::make_move_iterator(rows->begin()), std::make_move_iterator(rows->end()));
}

}  // namespace

void read_output(topology::Output& output, const Gathered& to) {
  to.facts.next_text();
  if (is_measurement(output.kind)) return read_rates(output, to);
  const auto* row = std::find_if(std::begin(kReaders), std::end(kReaders),
                                 [&output](const ReaderOf& one) { return one.kind == output.kind; });
  if (row == std::end(kReaders)) return;
  const auto gave = row->read(output, to);
  if (gave.empty()) {
    // Modules have numbers of their own, which no other output relates to accelerators.
    if (output.kind == Kind::hl_smi && output.state == topology::ReadState::not_understood) {
      output.state = topology::ReadState::not_used;
      output.gave = "modules have numbers of their own: lspci says where accelerators are";
    }
    if ((output.kind == Kind::ethtool_statistics || output.kind == Kind::qos) &&
        output.state == topology::ReadState::not_understood && interface_of(output, to.machine).empty()) {
      output.state = topology::ReadState::not_used;
      output.gave = "neither its command nor the file's name says which interface it is of";
    }
    return;
  }
  output.read_as(output.gave.empty() ? gave : output.gave + "; " + gave);
}

void join_facts(Facts& facts) {
  std::vector<std::pair<std::string, Seen>> types;
  for (const auto& [name, seen] : facts.all()) {
    if (!name.starts_with("pci.") || !name.ends_with(".iommu_group")) continue;
    const auto* type = facts.find("iommu.group." + seen.value);
    const auto device = name.substr(0, name.size() - std::string_view(".iommu_group").size());
    if (type != nullptr) types.emplace_back(device + ".iommu_type", *type);
  }
  for (auto& [name, seen] : types) facts.set(name, seen.value, seen.where);
}

}  // namespace fairway::doctor
