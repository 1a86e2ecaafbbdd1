#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "predict/constants.h"
#include "topology/machine.h"

namespace fairway::predict {

// CPUs by how they forward traffic between PCIe devices.
enum class CpuKind : std::uint8_t {
  unknown,
  intel_old,       // up to Broadwell
  intel_skylake,   // Skylake, Cascade Lake, Ice Lake
  intel_sapphire,  // Sapphire Rapids
  intel_emerald,   // Emerald Rapids
  intel_granite,   // Xeon 6: Granite Rapids, Sierra Forest
  amd_zen12,       // EPYC 7001, 7002
  amd_zen34,       // EPYC 7003, 9004
  amd_zen5,        // EPYC 9005
  arm,
  power9,
  zhaoxin,
};

// By vendor, family and model number, else by the model's name, else by the machine's architecture.
CpuKind cpu_kind(const topology::Machine& machine);
// "spr", "emr", "milan", ...: the names that --what-if takes.
std::optional<CpuKind> cpu_kind_from(std::string_view word);
std::string_view to_string(CpuKind kind);

bool is_amd(CpuKind kind);
// The rate of one flow between devices across sockets of this kind, with relaxed ordering.
ConstantId across_sockets(CpuKind kind);

}  // namespace fairway::predict
