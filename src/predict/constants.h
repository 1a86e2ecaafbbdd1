#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "topology/machine.h"

// The few numbers that the model cannot take from the machine's facts, and the CPUs that some of them depend on. The
// table in constants.cc has the meaning, range and source of each. None was fitted to the measurements that the tests
// compare the model with.
namespace fairway::predict {

// An end of a range, or its middle.
enum class Level : std::uint8_t { low, expected, high };
inline constexpr std::array<Level, 3> kLevels = {Level::low, Level::expected, Level::high};

// An expected figure and its plausible range: low <= expected <= high.
struct Range {
  double low = 0;
  double expected = 0;
  double high = 0;

  static constexpr Range exactly(double x) { return {x, x, x}; }
  [[nodiscard]] constexpr double at(Level level) const {
    return level == Level::low ? low : level == Level::high ? high : expected;
  }
  constexpr void set(Level level, double x) {
    (level == Level::low ? low : level == Level::high ? high : expected) = x;
  }
  [[nodiscard]] constexpr bool holds(double x) const { return low <= x && x <= high; }
  friend constexpr Range operator*(const Range& a, double k) { return {a.low * k, a.expected * k, a.high * k}; }
  friend constexpr Range operator+(const Range& a, const Range& b) {
    return {a.low + b.low, a.expected + b.expected, a.high + b.high};
  }
  friend bool operator==(const Range&, const Range&) = default;
};

enum class ConstantId : std::uint8_t {
  wire_fill,
  one_qp,
  nic_messages,
  round_trip,
  nic_loop,
  pcie_dma,
  pcie_copy,
  pcie_copy_old,
  pcie_64_bytes,
  gpu_read_old,
  node,
  sys_unknown,
  sys_intel_old,
  sys_intel_skylake,
  sys_intel_sapphire,
  sys_intel_emerald,
  sys_amd_zen12,
  sys_amd_zen34,
  sys_amd_zen5,
  sys_arm,
  sys_power9,
  sys_zhaoxin,
  strict,
  strict_amd,
  strict_vm,
  socket_memory,
  memory_nic,
  memory_copy,
  stage,
  copy_core,
  copy_sockets,
  nvlink_sm,
  nvlink_copy,
  nvlink_copy_old,
  xgmi,
  c2c,
  latency_pix,
  latency_pxb,
  latency_phb,
  latency_node,
  latency_sys,
  latency_nvlink,
  latency_host,
  latency_wire,
  count,
};
inline constexpr std::size_t kConstantCount = static_cast<std::size_t>(ConstantId::count);

enum class Unit : std::uint8_t { share, gbs, gbps, us, mega };
std::string_view to_string(Unit unit);

struct ConstantRow {
  ConstantId id;
  std::string_view name;  // "pcie.dma": stable, for files and command lines
  Unit unit;              // share: of a nominal rate; gbs: GB/s; gbps: Gb/s; us: microseconds; mega: millions a second
  Range range;
  std::string_view what;
  std::string_view source;
};
std::span<const ConstantRow> constant_table();
const ConstantRow& row_of(ConstantId id);
std::optional<ConstantId> constant_from(std::string_view name);

// The values of the table or of a calibration. A value.
class Constants {
 public:
  Constants();
  [[nodiscard]] const Range& operator[](ConstantId id) const { return values_[static_cast<std::size_t>(id)]; }
  void set(ConstantId id, const Range& range) { values_[static_cast<std::size_t>(id)] = range; }
  // Differs from the table.
  [[nodiscard]] bool is_calibrated(ConstantId id) const { return !((*this)[id] == row_of(id).range); }

 private:
  std::array<Range, kConstantCount> values_;
};

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
