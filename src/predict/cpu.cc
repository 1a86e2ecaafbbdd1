#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "predict/constants.h"
#include "topology/fact.h"
#include "topology/text.h"

namespace fairway::predict {
namespace {

constexpr topology::NameTable<CpuKind, 12> kNames{{{CpuKind::unknown, "an unknown CPU"},
                                                   {CpuKind::intel_old, "Xeon up to Broadwell"},
                                                   {CpuKind::intel_skylake, "Xeon Skylake to Ice Lake"},
                                                   {CpuKind::intel_sapphire, "Xeon Sapphire Rapids"},
                                                   {CpuKind::intel_emerald, "Xeon Emerald Rapids"},
                                                   {CpuKind::intel_granite, "Xeon 6"},
                                                   {CpuKind::amd_zen12, "EPYC 7001 or 7002"},
                                                   {CpuKind::amd_zen34, "EPYC 7003 or 9004"},
                                                   {CpuKind::amd_zen5, "EPYC 9005"},
                                                   {CpuKind::arm, "Arm"},
                                                   {CpuKind::power9, "POWER9"},
                                                   {CpuKind::zhaoxin, "Zhaoxin"}}};

constexpr auto kWords = std::to_array<std::pair<std::string_view, CpuKind>>({
    {"unknown", CpuKind::unknown},
    {"haswell", CpuKind::intel_old},
    {"broadwell", CpuKind::intel_old},
    {"skylake", CpuKind::intel_skylake},
    {"cascadelake", CpuKind::intel_skylake},
    {"icelake", CpuKind::intel_skylake},
    {"sapphire", CpuKind::intel_sapphire},
    {"spr", CpuKind::intel_sapphire},
    {"emerald", CpuKind::intel_emerald},
    {"emr", CpuKind::intel_emerald},
    {"granite", CpuKind::intel_granite},
    {"gnr", CpuKind::intel_granite},
    {"naples", CpuKind::amd_zen12},
    {"rome", CpuKind::amd_zen12},
    {"milan", CpuKind::amd_zen34},
    {"genoa", CpuKind::amd_zen34},
    {"turin", CpuKind::amd_zen5},
    {"arm", CpuKind::arm},
    {"grace", CpuKind::arm},
    {"power9", CpuKind::power9},
    {"zhaoxin", CpuKind::zhaoxin},
});

// CPUID's display family and model, as /proc/cpuinfo prints them. Servers alone are listed: desktops of the same family
// have other memory and other root complexes, and what is not listed is unknown.
CpuKind by_number(std::string_view vendor, std::uint32_t family, std::uint32_t model) {
  if (vendor == "GenuineIntel" && family == 6) {
    switch (model) {
      case 0x2d:  // Sandy Bridge-EP
      case 0x3e:  // Ivy Bridge-EP
      case 0x3f:  // Haswell-EP
      case 0x4f:  // Broadwell-EP
      case 0x56: return CpuKind::intel_old;
      case 0x55:
      case 0x6a:
      case 0x6c: return CpuKind::intel_skylake;
      case 0x8f: return CpuKind::intel_sapphire;
      case 0xcf: return CpuKind::intel_emerald;
      case 0xad:
      case 0xae:
      case 0xaf: return CpuKind::intel_granite;
      default: return CpuKind::unknown;
    }
  }
  if (vendor == "AuthenticAMD") {
    // NCCL's files have the two fields of CPUID side by side: 143 is 0xf and 8, which are added: 0x17.
    if (family > 0x1f && (family & 0xfU) == 0xf) family = 0xf + (family >> 4U);
    if (family == 0x17) return model == 0x01 || model == 0x31 ? CpuKind::amd_zen12 : CpuKind::unknown;
    // Milan, Genoa, Bergamo and Siena
    if (family == 0x19)
      return model == 0x01 || model == 0x11 || (model >= 0xa0 && model <= 0xaf) ? CpuKind::amd_zen34 : CpuKind::unknown;
    if (family == 0x1a) return model <= 0x1f ? CpuKind::amd_zen5 : CpuKind::unknown;
  }
  return CpuKind::unknown;
}

// The first run of exactly four digits: 8480 of "Platinum 8480C", 7763 of "EPYC 7763".
std::string four_digits(std::string_view name) {
  std::string digits;
  for (const char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      digits += c;
    } else {
      if (digits.size() == 4) return digits;
      digits.clear();
    }
  }
  return digits.size() == 4 ? digits : std::string();
}

CpuKind by_name(std::string_view name) {
  const auto text = topology::text::lower(name);
  const auto has = [&text](std::string_view part) { return text.find(part) != std::string::npos; };
  const auto number = four_digits(name);
  if (has("epyc") && number.size() == 4) {
    if (number[0] == '9') return number[3] == '5' ? CpuKind::amd_zen5 : CpuKind::amd_zen34;
    return number[3] <= '2' ? CpuKind::amd_zen12 : CpuKind::amd_zen34;
  }
  // Xeon E and W are desktops' and workstations'.
  const bool scalable = has("platinum") || has("gold") || has("silver") || has("bronze") || has(" max ");
  if (has("xeon")) {
    if (number.empty() || has(" v2") || has(" v3") || has(" v4"))
      return number.empty() ? CpuKind::unknown : CpuKind::intel_old;
    if (number[0] == '6' && (has("xeon(r) 6") || has("xeon 6"))) return CpuKind::intel_granite;
    if (!scalable) return CpuKind::unknown;
    switch (number[1]) {
      case '1':
      case '2':
      case '3': return CpuKind::intel_skylake;
      case '4': return CpuKind::intel_sapphire;
      case '5': return CpuKind::intel_emerald;
      default: return CpuKind::unknown;
    }
  }
  if (has("power9")) return CpuKind::power9;
  if (has("grace") || has("neoverse") || has("kunpeng") || has("ampere")) return CpuKind::arm;
  return CpuKind::unknown;
}

}  // namespace

CpuKind cpu_kind(const topology::Machine& machine) {
  for (const auto& package : machine.packages) {
    const auto vendor = package.vendor.value_or("");
    // Ryzen and Threadripper share EPYC's families.
    const bool other_amd =
        vendor == "AuthenticAMD" && package.model && package.model->find("EPYC") == std::string::npos;
    if (other_amd) return CpuKind::unknown;
    if (package.family && package.model_number) {
      const auto kind = by_number(vendor, *package.family, *package.model_number);
      if (kind != CpuKind::unknown) return kind;
    }
    if (package.model) {
      const auto kind = by_name(*package.model);
      if (kind != CpuKind::unknown) return kind;
    }
    if (vendor.find("hanghai") != std::string::npos || vendor == "CentaurHauls") return CpuKind::zhaoxin;
  }
  if (machine.cpu_family && machine.cpu_model_number) {
    const auto kind = by_number(machine.cpu_vendor.value_or(""), *machine.cpu_family, *machine.cpu_model_number);
    if (kind != CpuKind::unknown) return kind;
  }
  const auto architecture = machine.architecture.value_or("");
  if (architecture == "aarch64" || architecture == "arm64") return CpuKind::arm;
  if (architecture == "ppc64le") return CpuKind::power9;
  return CpuKind::unknown;
}

std::optional<CpuKind> cpu_kind_from(std::string_view word) {
  const auto lower = topology::text::lower(word);
  for (const auto& [name, kind] : kWords) {
    if (name == lower) return kind;
  }
  return {};
}

std::string_view to_string(CpuKind kind) {
  return topology::name_of(kNames, kind);
}

bool is_amd(CpuKind kind) {
  return kind == CpuKind::amd_zen12 || kind == CpuKind::amd_zen34 || kind == CpuKind::amd_zen5;
}

ConstantId across_sockets(CpuKind kind) {
  switch (kind) {
    case CpuKind::intel_old: return ConstantId::sys_intel_old;
    case CpuKind::intel_skylake: return ConstantId::sys_intel_skylake;
    case CpuKind::intel_sapphire: return ConstantId::sys_intel_sapphire;
    case CpuKind::intel_emerald:
    case CpuKind::intel_granite: return ConstantId::sys_intel_emerald;
    case CpuKind::amd_zen12: return ConstantId::sys_amd_zen12;
    case CpuKind::amd_zen34: return ConstantId::sys_amd_zen34;
    case CpuKind::amd_zen5: return ConstantId::sys_amd_zen5;
    case CpuKind::arm: return ConstantId::sys_arm;
    case CpuKind::power9: return ConstantId::sys_power9;
    case CpuKind::zhaoxin: return ConstantId::sys_zhaoxin;
    case CpuKind::unknown: break;
  }
  return ConstantId::sys_unknown;
}

}  // namespace fairway::predict
