#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/commands/command_text.h"
#include "topology/text.h"

// What nvidia-smi says of the state of GPUs.
namespace fairway::doctor {

namespace text = topology::text;
using topology::Output;

namespace {

// "Status: Success", "Bandwidth: Degraded", "Route Unhealthy: True"
void read_fabric(const std::string& prefix, std::string_view key, const std::string& value, const std::string& where,
                 Facts& facts) {
  std::string name = text::lower(key);
  for (auto& c : name) c = c == ' ' ? '_' : c;
  if (name == "state") return;
  const auto fact = prefix + ".fabric." + text::quote(name);
  const auto low = text::lower(value);
  facts.set(fact, low, where);
}

// What the driver asks for: "Reset Required: Yes", "GPU Recovery Action: Reboot".
void read_recovery(const std::string& prefix, std::string_view key, const std::string& value, const std::string& where,
                   Facts& facts) {
  const auto low = text::lower(value);
  if (key == "Reset Required") facts.set(prefix + ".reset_required", low, where);
  if (key == "Drain and Reset Recommended") facts.set(prefix + ".drain_recommended", low, where);
  if (key == "GPU Recovery Action") facts.set(prefix + ".recovery_action", low, where);
}

// "GPU Current Temp : 95 C" and "GPU Slowdown Temp : 92 C"; newer drivers say how far below the limit it is.
void read_heat(const std::string& prefix, std::string_view key, const std::string& value, const std::string& where,
               Facts& facts) {
  const auto degrees = text::leading_double(value);
  if (!degrees) return;
  if (key == "GPU Current Temp") facts.set(prefix + ".celsius", fmt::format("{:g}", *degrees), where);
  if (key == "GPU Slowdown Temp") facts.set(prefix + ".slowdown_celsius", fmt::format("{:g}", *degrees), where);
  if (key == "GPU T.Limit Temp") facts.set(prefix + ".limit_margin", fmt::format("{:g}", *degrees), where);
  if (key == "GPU Slowdown T.Limit Temp") facts.set(prefix + ".slowdown_margin", fmt::format("{:g}", *degrees), where);
}

}  // namespace

// nvidia-smi -q.
std::string read_smi_query(const Output& output, const Gathered& to) {
  const auto& machine = to.machine;
  auto& facts = to.facts;
  std::string prefix;
  std::string whose;
  ErrorCells errors;
  topology::SmiFields fields;
  std::size_t number = 0;
  std::size_t told = 0;         // GPUs so far
  std::set<std::string> whole;  // GPUs whose every field is there
  std::map<std::string, std::uint64_t> uncorrected;
  std::map<std::string, std::string> uncorrected_at;
  std::map<std::string, std::pair<std::string, std::string>> throttled;  // reasons, and where the last stands
  const auto normal = [](std::string_view words) { return text::lower(words); };
  const bool headed = output.text.starts_with("GPU ") || output.text.find("\nGPU ") != std::string::npos;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (!headed && line == topology::kFabricHeading) {
      fields.begin_gpu();
      prefix = fmt::format("gpu.{}", told++);
    }
    if (line.starts_with("GPU ")) {
      const auto bus = topology::BusId::parse(text::trim(line.substr(4)));
      fields.begin_gpu();
      prefix.clear();
      whose = bus ? bus->to_string() : std::string();
      for (const auto& gpu : machine.gpus) {
        if (bus && gpu.pci && machine.pci[gpu.pci.index].bus_id == *bus) prefix = fmt::format("gpu.{}", gpu.ordinal);
      }
      // Without bus ids on record the order of the file is that of the numbers.
      if (bus && prefix.empty() && told < machine.gpus.size() && !machine.gpus[told].pci)
        prefix = fmt::format("gpu.{}", machine.gpus[told].ordinal);
      if (bus) ++told;
      continue;
    }
    const auto field = fields.read(line);
    const auto& [key, text_of_value, section, is_heading, is_lost] = field;
    if (is_heading) errors.see(whose, "nvidia-smi", key, output.at(number));
    if (!is_heading) errors.see(whose, fmt::format("{} {}", section, key), text_of_value, output.at(number));
    if (prefix.empty() || is_heading || key.empty()) continue;
    const auto value = std::string(text_of_value);
    const auto where = output.at(number);
    const bool active = normal(value) == "active";
    if (key == "Persistence Mode") facts.set(prefix + ".persistence", normal(value), where), whole.insert(prefix);
    if (key == "Current" && section == "MIG Mode") facts.set(prefix + ".mig", normal(value), where);
    if (key == "State" && section == "Fabric") facts.set(prefix + ".fabric_state", normal(value), where);
    if (section == "Fabric" || section == "Health") read_fabric(prefix, key, value, where, facts);
    // In P5 to P8 a GPU rests, whatever runs on it now and then.
    if (key == "Performance State" && value.size() == 2 && value >= "P5") facts.set(prefix + ".load", "no", where);
    if ((key == "Gpu" || key == "GPU") && section == "Utilization")
      facts.set(prefix + ".load", text::leading_unsigned(value).value_or(0) > 10 ? "yes" : "no", where);
    if (key == "Replays Since Reset") facts.set(prefix + ".pcie_replays", value, where);
    if (key == "Host Max" && section == "PCIe Generation") facts.set(prefix + ".pcie_host_gen", value, where);
    // "HW Slowdown" is active with each of its reasons, which stand below it.
    for (const auto& [reason, word] :
         {std::pair{"HW Slowdown", "hw_slowdown"}, std::pair{"HW Thermal Slowdown", "hw_thermal"},
          std::pair{"HW Power Brake Slowdown", "hw_power_brake"}, std::pair{"SW Thermal Slowdown", "sw_thermal"}}) {
      if (!active || key != reason) continue;
      auto& all = throttled[prefix];
      all.first += (all.first.empty() ? "" : " ") + std::string(word);
      all.second = where;
    }
    if (key == "Pending" && section == "Remapped Rows") facts.set(prefix + ".remap_pending", normal(value), where);
    if (key == "Pending Page Blacklist") facts.set(prefix + ".page_pending", normal(value), where);
    if (key == "SRAM Threshold Exceeded") facts.set(prefix + ".sram_threshold", normal(value), where);
    read_recovery(prefix, key, value, where, facts);
    read_heat(prefix, key, value, where, facts);
    if (key == "Remapping Failure Occurred") facts.set(prefix + ".remap_failure", normal(value), where);
    // Since the driver was loaded; the sum of all that the driver's version tells apart.
    if (section == "Volatile" && key.find("Uncorrectable") != key.npos)
      uncorrected[prefix] += text::leading_unsigned(value).value_or(0), uncorrected_at.try_emplace(prefix, where);
  }
  errors.tell(facts);
  for (const auto& [gpu, why] : throttled) facts.set(gpu + ".throttle", why.first, why.second);
  for (const auto& [gpu, sum] : uncorrected)
    facts.set(gpu + ".ecc_uncorrected", std::to_string(sum), uncorrected_at[gpu]);
  for (const auto& gpu : machine.gpus) {
    // A whole log that names no reason says that there is none.
    if (whole.contains(fmt::format("gpu.{}", gpu.ordinal)))
      facts.set(fmt::format("gpu.{}.throttle", gpu.ordinal), "none", output.at(1));
  }
  return told == 0 ? std::string() : fmt::format("the state of {} GPU{}", told, told == 1 ? "" : "s");
}

// nvidia-smi's table: two lines a GPU.
// "|   1  NVIDIA H100 80GB HBM3          Off |   00000000:81:00.0 Off |                   14 |"
// "| N/A   89C    P0            698W /  700W |   70211MiB /  81559MiB |    100%      Default |"
std::string read_smi_table(const Output& output, const Gathered& to) {
  std::string prefix;
  std::string whose;
  ErrorCells errors;
  std::size_t number = 0;
  std::size_t told = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    // "WARNING: infoROM is corrupted at gpu 0000:43:00.0", below the table
    if (line.starts_with("WARNING: infoROM")) {
      const auto bus = topology::BusId::parse(text::words(line).back());
      to.facts.set("unread." + (bus ? bus->to_string() : std::string("a GPU")), text::quote(line, 120),
                   output.at(number));
    }
    const auto cells = text::split(line, '|');
    if (cells.size() < 5) continue;
    const auto where = output.at(number);
    const auto left = text::words(cells[1]);
    const auto middle = text::words(cells[2]);
    const auto right = text::words(cells[3]);
    const auto bus = middle.empty() ? std::nullopt : topology::BusId::parse(middle.front());
    const auto ordinal = left.empty() ? std::nullopt : text::to_u32(left.front());
    if (bus && ordinal && left.size() > 2) {
      prefix = fmt::format("gpu.{}", *ordinal);
      whose = fmt::format("GPU{}", *ordinal);
      ++told;
      for (const auto word : left) errors.see(whose, "name", word, where);
      for (const auto word : right) errors.see(whose, "ECC", word, where);
      if (left.back() == "On" || left.back() == "Off")
        to.facts.set(prefix + ".persistence", left.back() == "On" ? "enabled" : "disabled", where);
      if (!right.empty() && text::to_unsigned(right.front()))
        to.facts.set(prefix + ".ecc_uncorrected", std::string(right.front()), where);
      continue;
    }
    for (std::size_t cell = 1; cell + 1 < cells.size(); ++cell) {
      for (const auto word : text::words(cells[cell])) errors.see(whose, "its state", word, where);
    }
    if (prefix.empty() || right.empty()) continue;
    if (right.front().ends_with('%')) {
      const auto load = text::leading_unsigned(right.front()).value_or(0);
      to.facts.set(prefix + ".load", load > 10 ? "yes" : "no", where);
    } else if (left.empty() && (right.back() == "Enabled" || right.back() == "Disabled")) {
      to.facts.set(prefix + ".mig", text::lower(right.back()), where);
    }
  }
  errors.tell(to.facts);
  return told == 0 ? std::string() : fmt::format("the state of {} GPU{}", told, told == 1 ? "" : "s");
}

namespace {

// The counters of `nvidia-smi nvlink -e` that count faults. Since Blackwell it counts packets, bytes, recoveries that
// went well and code words that FEC repaired too: those are traffic.
std::string nvlink_fault(std::string_view what) {
  auto name = text::lower(text::trim(what));
  if (name.starts_with("fec ") || name.find("ber") == 0) return {};
  if (name.ends_with(" errors")) {
    name.resize(name.size() - 7);
  } else if (!name.ends_with("recovery failed events")) {
    return {};
  }
  for (auto& c : name) c = c == ' ' || c == '.' ? '_' : c;
  return text::quote(name);
}

}  // namespace

// `nvidia-smi nvlink -e`: "GPU 0: ..." and "Link 0: CRC Errors: 99121".
std::string read_nvlink_errors(const Output& output, const Gathered& to) {
  std::string prefix;
  std::string grown;
  std::string inactive;
  std::size_t counters = 0;
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto parts = text::split(text::trim(line), ':');
    if (!prefix.empty() && text::lower(line).find("all links are inactive") != std::string::npos) {
      to.facts.set(prefix + ".nvlinks_inactive", text::quote(text::trim(line), 120), output.at(number));
      inactive += (inactive.empty() ? "no active link of " : ", ") + prefix;
    }
    if (parts.size() < 2) continue;
    const auto rate =
        parts.size() == 2 && parts[1].ends_with("GB/s") ? text::leading_double(text::trim(parts[1])) : std::nullopt;
    const auto of = rate && parts[0].starts_with("Link ") ? text::to_u32(text::trim(parts[0].substr(5))) : std::nullopt;
    if (of && !prefix.empty())
      to.facts.set(fmt::format("{}.nvlink_gbs.{}", prefix, *of), fmt::format("{:g}", *rate), output.at(number));
    if (parts.size() < 3) continue;
    if (parts[0].starts_with("GPU ")) {
      const auto ordinal = text::to_u32(text::trim(parts[0].substr(4)));
      prefix = ordinal ? fmt::format("gpu.{}", *ordinal) : std::string();
      continue;
    }
    const auto link = parts[0].starts_with("Link ") ? text::to_u32(text::trim(parts[0].substr(5))) : std::nullopt;
    const auto value = text::to_unsigned(text::trim(parts[2]));
    const auto what = nvlink_fault(parts[1]);
    if (prefix.empty() || !link || !value || what.empty()) continue;
    to.facts.set(fmt::format("{}.nvlink_errors.{}.{}", prefix, *link, what), std::to_string(*value), output.at(number));
    ++counters;
    if (*value > 0 && grown.size() < 100)
      grown += fmt::format("{}link {} of {} {} {}", grown.empty() ? ": " : ", ", *link, prefix, what, *value);
  }
  return counters == 0 ? inactive : fmt::format("{} error counters{}", counters, grown);
}

namespace {

// "clocks_event_reasons.hw_thermal_slowdown", which older drivers call clocks_throttle_reasons.
template <class Cell>
std::size_t read_slowdowns(std::uint32_t ordinal, Cell cell, const std::string& where, Facts& facts) {
  std::string why;
  std::size_t told = 0;
  for (const auto& [reason, word] :
       {std::pair{"hw_slowdown", "hw_slowdown"}, std::pair{"hw_thermal_slowdown", "hw_thermal"},
        std::pair{"hw_power_brake_slowdown", "hw_power_brake"}, std::pair{"sw_thermal_slowdown", "sw_thermal"}}) {
    for (const auto* group : {"clocks_event_reasons.", "clocks_throttle_reasons."}) {
      const auto value = text::lower(cell(std::string(group) + reason));
      told += value == "active" || value == "not active" ? 1 : 0;
      if (value == "active" && why.find(word) == std::string::npos) why += (why.empty() ? "" : " ") + std::string(word);
    }
  }
  if (told > 0) facts.set(fmt::format("gpu.{}.throttle", ordinal), why.empty() ? "none" : why, where);
  return told;
}

// The link of a GPU whose bus id is no column: the machine has no place for it.
template <class Cell>
std::size_t read_link_of_query(std::uint32_t ordinal, Cell cell, const std::string& where, Facts& facts) {
  std::size_t told = 0;
  for (const auto& [column, fact] :
       {std::pair{"pcie.link.width.current", "pcie_width"}, std::pair{"pcie.link.width.max", "pcie_max_width"}}) {
    const auto width = text::leading_unsigned(cell(column));
    if (!width || *width == 0 || *width > 32) continue;
    facts.set(fmt::format("gpu.{}.{}", ordinal, fact), std::to_string(*width), where);
    ++told;
  }
  return told;
}

}  // namespace

// Columns of --query-gpu that say how a GPU is, by the number in its row.
std::string read_gpu_query_facts(const Output& output, const Gathered& to) {
  struct Column {
    std::string_view name;
    std::string_view fact;
  };
  static constexpr Column kColumns[] = {{"persistence_mode", "persistence"},
                                        {"mig.mode.current", "mig"},
                                        {"ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"},
                                        {"fabric.state", "fabric_state"},
                                        {"fabric.status", "fabric.status"},
                                        {"remapped_rows.pending", "remap_pending"},
                                        {"remapped_rows.failure", "remap_failure"},
                                        {"retired_pages.pending", "page_pending"},
                                        {"gpu_recovery_action", "recovery_action"},
                                        {"reset_status.reset_required", "reset_required"}};
  std::vector<std::string_view> heading;
  ErrorCells errors;
  std::size_t number = 0;
  std::size_t told = 0;
  const auto cells = [](std::string_view line) {
    auto parts = text::split(line, ',');
    for (auto& part : parts) part = text::trim(part);
    return parts;
  };
  for (const auto line : text::lines(output.text)) {
    ++number;
    const auto row = cells(line);
    if (heading.empty()) {
      if (std::ranges::find(row, "index") == row.end() && std::ranges::find(row, "pci.bus_id") == row.end()) continue;
      for (const auto name : row) heading.push_back(text::trim(name.substr(0, name.find(" ["))));
      continue;
    }
    const auto cell = [&](std::string_view name) {
      const auto at = static_cast<std::size_t>(std::ranges::find(heading, name) - heading.begin());
      return at < heading.size() && at < row.size() ? row[at] : std::string_view{};
    };
    const auto ordinal = text::to_u32(cell("index"));
    const auto bus = topology::BusId::parse(cell("pci.bus_id"));
    const auto whose = ordinal ? fmt::format("GPU{}", *ordinal) : bus ? bus->to_string() : std::string();
    for (std::size_t i = 0; i < row.size() && i < heading.size(); ++i)
      errors.see(whose, heading[i], row[i], output.at(number));
    if (!ordinal) continue;
    for (const auto& [name, fact] : kColumns) {
      const auto value = text::lower(cell(name));
      if (value.empty() || value.starts_with('[') || value == "n/a") continue;
      // Some drivers print whether as a number.
      const bool whether = fact.starts_with("remap") || fact == "page_pending" || fact == "reset_required";
      to.facts.set(fmt::format("gpu.{}.{}", *ordinal, fact),
                   whether ? (value == "no" || value == "0" ? "no" : "yes") : text::quote(value), output.at(number));
      ++told;
    }
    told += read_slowdowns(*ordinal, cell, output.at(number), to.facts);
    if (!bus) told += read_link_of_query(*ordinal, cell, output.at(number), to.facts);
    if (const auto load = text::leading_unsigned(cell("utilization.gpu")))
      to.facts.set(fmt::format("gpu.{}.load", *ordinal), *load > 10 ? "yes" : "no", output.at(number));
  }
  errors.tell(to.facts);
  return told == 0 ? std::string() : fmt::format("{} of their states", told);
}

// PyTorch's and vLLM's collect_env: versions; the outputs of commands in it are read by themselves.
std::string read_collect_env(const Output& output, const Gathered& to) {
  std::string gave;
  std::size_t number = 0;
  for (const auto line : text::lines(output.text)) {
    ++number;
    for (const auto& [head, fact] :
         {std::pair{"PyTorch version: ", "torch.version"}, std::pair{"Nvidia driver version: ", "gpu.driver"},
          std::pair{"CUDA runtime version: ", "cuda.version"}}) {
      if (!line.starts_with(head)) continue;
      const auto value = text::quote(text::trim(line.substr(std::string_view(head).size())), 60);
      to.facts.set(fact, value, output.at(number));
      gave += fmt::format("{}{}{}", gave.empty() ? "" : ", ", text::lower(head), value);
    }
  }
  return gave.empty() ? std::string("versions of libraries") : gave;
}

}  // namespace fairway::doctor
