#include <algorithm>
#include <array>
#include <set>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "doctor/gather.h"
#include "doctor/netlink.h"
#include "topology/file.h"
#include "topology/text.h"

// What drivers say of this machine's GPUs and NICs. NVML is opened at run time; the declarations are the few of its
// stable ABI that are used (NVML API reference).
namespace fairway::doctor {
namespace {

using Device = void*;
using Result32 = int;
constexpr Result32 kSuccess = 0;
constexpr Result32 kNotSupported = 3;
constexpr Result32 kGpuIsLost = 15;
constexpr Result32 kResetRequired = 16;

// nvmlClocksEventReasons: those that tell of heat or hardware.
constexpr unsigned long long kHwSlowdown = 0x8;
constexpr unsigned long long kSwThermal = 0x20;
constexpr unsigned long long kHwThermal = 0x40;
constexpr unsigned long long kHwPowerBrake = 0x80;

struct FabricInfo {  // nvmlGpuFabricInfo_t
  unsigned char cluster[16];
  Result32 status;
  unsigned clique;
  unsigned char state;
};

class Library {
 public:
  Library() : handle_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (shutdown_ != nullptr) shutdown_();
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  bool start() {
    Result32 (*init)() = nullptr;
    if (handle_ == nullptr || !find("nvmlInit_v2", init) || init() != kSuccess) return false;
    find("nvmlShutdown", shutdown_);
    return true;
  }
  template <class F>
  bool find(const char* name, F*& function) {
    function = reinterpret_cast<F*>(::dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  Result32 (*shutdown_)() = nullptr;
};

class Reader {
 public:
  Reader(Library& library, Facts& facts) : facts_(facts) {
    library.find("nvmlDeviceGetHandleByPciBusId_v2", by_bus_);
    library.find("nvmlDeviceGetPersistenceMode", persistence_);
    library.find("nvmlDeviceGetCurrentClocksThrottleReasons", reasons_);
    library.find("nvmlDeviceGetTotalEccErrors", ecc_);
    library.find("nvmlDeviceGetRemappedRows", remapped_);
    library.find("nvmlDeviceGetMigMode", mig_);
    library.find("nvmlDeviceGetGpuFabricInfo", fabric_);
    library.find("nvmlDeviceGetUtilizationRates", utilization_);
  }

  void read(const std::string& bus, const std::string& prefix) {
    Device device = nullptr;
    const auto found = by_bus_ == nullptr ? kNotSupported : by_bus_(bus.c_str(), &device);
    if (found == kGpuIsLost || found == kResetRequired)
      set("lost." + bus, found == kGpuIsLost ? "GPU is lost" : "GPU requires reset");
    if (found != kSuccess) return facts_.miss(prefix, "NVML does not know " + bus);
    unsigned a = 0;
    unsigned b = 0;
    if (persistence_ != nullptr && persistence_(device, &a) == kSuccess)
      set(prefix + ".persistence", a != 0 ? "enabled" : "disabled");
    unsigned long long mask = 0;
    if (reasons_ != nullptr && reasons_(device, &mask) == kSuccess) {
      std::string words;
      if ((mask & kHwSlowdown) != 0) words += "hw_slowdown ";
      if ((mask & kHwThermal) != 0) words += "hw_thermal ";
      if ((mask & kHwPowerBrake) != 0) words += "hw_power_brake ";
      if ((mask & kSwThermal) != 0) words += "sw_thermal ";
      set(prefix + ".throttle", words.empty() ? "none" : words);
    }
    unsigned long long errors = 0;
    // uncorrected (1), since the last driver load (volatile, 0)
    if (ecc_ != nullptr && ecc_(device, 1, 0, &errors) == kSuccess)
      set(prefix + ".ecc_uncorrected", std::to_string(errors));
    unsigned pending = 0;
    unsigned failed = 0;
    if (remapped_ != nullptr && remapped_(device, &a, &b, &pending, &failed) == kSuccess) {
      set(prefix + ".remap_pending", pending != 0 ? "yes" : "no");
      set(prefix + ".remap_failure", failed != 0 ? "yes" : "no");
    }
    if (mig_ != nullptr && mig_(device, &a, &b) == kSuccess) set(prefix + ".mig", a != 0 ? "enabled" : "disabled");
    FabricInfo info{};
    if (fabric_ != nullptr) {
      const auto result = fabric_(device, &info);
      constexpr std::array<const char*, 4> kStates = {"not supported", "not started", "in progress", "completed"};
      if (result == kSuccess && info.state < kStates.size()) set(prefix + ".fabric_state", kStates[info.state]);
      if (result == kNotSupported) set(prefix + ".fabric_state", "not supported");
    }
    struct {
      unsigned gpu, memory;
    } load{};
    if (utilization_ != nullptr && utilization_(device, &load) == kSuccess)
      set(prefix + ".load", load.gpu > 10 ? "yes" : "no");
  }

 private:
  void set(const std::string& name, std::string value) { facts_.set(name, std::move(value), "NVML"); }

  Facts& facts_;
  Result32 (*by_bus_)(const char*, Device*) = nullptr;
  Result32 (*persistence_)(Device, unsigned*) = nullptr;
  Result32 (*reasons_)(Device, unsigned long long*) = nullptr;
  Result32 (*ecc_)(Device, int, int, unsigned long long*) = nullptr;
  Result32 (*remapped_)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Result32 (*mig_)(Device, unsigned*, unsigned*) = nullptr;
  Result32 (*fabric_)(Device, FabricInfo*) = nullptr;
  Result32 (*utilization_)(Device, void*) = nullptr;
};

}  // namespace

void read_nvml_facts(const topology::Machine& machine, Facts& facts) {
  if (machine.gpus.empty()) return;
  Library library;
  if (!library.start()) return facts.miss("gpu", "no NVIDIA driver answers (libnvidia-ml.so.1)");
  Reader reader(library, facts);
  for (const auto& gpu : machine.gpus) {
    if (gpu.pci) reader.read(machine.pci[gpu.pci.index].bus_id.to_string(), fmt::format("gpu.{}", gpu.ordinal));
  }
}

// ---- of NICs, by ioctl, netlink and debugfs ----

namespace text = topology::text;

// mlx5's names; other drivers share some.
bool is_statistic_of_interest(const std::string& name) {
  static const std::set<std::string> kNames = {"rx_discards_phy",
                                               "tx_discards_phy",
                                               "rx_out_of_buffer",
                                               "rx_crc_errors_phy",
                                               "rx_symbol_err_phy",
                                               "rx_corrected_bits_phy",
                                               "link_down_events_phy",
                                               "tx_pause_storm_warning_events",
                                               "tx_pause_storm_error_events",
                                               "rx_missed_errors",
                                               "rx_dropped"};
  return kNames.contains(name);
}

namespace {

void read_interface(const std::string& name, Facts& facts) {
  const auto prefix = fmt::format("net.{}.", name);
  if (const auto statistics = ethtool_statistics(name)) {
    for (const auto& [key, value] : *statistics) {
      if (is_statistic_of_interest(key)) facts.set(prefix + "stat." + key, std::to_string(value), "ethtool -S " + name);
    }
  } else {
    facts.miss(prefix + "stat", statistics.status().message());
  }
  if (const auto modes = link_modes(name)) {
    const auto where = "ethtool " + name;
    if (modes->supported_gbps > 0)
      facts.set(prefix + "supported_gbps", fmt::format("{:g}", modes->supported_gbps), where);
    if (modes->partner_gbps > 0) facts.set(prefix + "partner_gbps", fmt::format("{:g}", modes->partner_gbps), where);
    if (modes->half_duplex) facts.set(prefix + "duplex", "half", where);
    if (modes->negotiates) facts.set(prefix + "autoneg", *modes->negotiates ? "on" : "off", where);
    if (modes->supported_gbps <= 0) facts.miss(prefix + "supported_gbps", "its driver names no link modes");
  } else {
    facts.miss(prefix + "supported_gbps", modes.status().message());
  }
  if (const auto pfc = lossless_priorities(name)) {
    std::string map;
    for (const bool on : *pfc) map += on ? '1' : '0';
    facts.set(prefix + "pfc", map, "dcb pfc show dev " + name);
  } else {
    facts.miss(prefix + "pfc", pfc.status().message());
  }
}

// How mlx5 spreads queue pairs over the ports of a bond: root's alone.
void read_lag(const std::string& root, const std::string& bus_id, Facts& facts) {
  const auto folder = "/sys/kernel/debug/mlx5/" + bus_id + "/lag";
  for (const char* name : {"state", "type", "port_sel_mode"}) {
    const auto content = topology::read_file(root + folder + "/" + name, 4096);
    const auto key = fmt::format("lag.{}.{}", bus_id, name);
    if (content) {
      facts.set(key, text::quote(text::trim(*content), 60), folder + "/" + name);
    } else {
      facts.miss(key, content.status().message());
    }
  }
}

}  // namespace

void read_link_facts(const topology::Machine& machine, Facts& facts) {
  for (const auto& interface : machine.interfaces) {
    if (interface.kind == topology::InterfaceKind::physical) read_interface(interface.name, facts);
  }
  for (const auto& nic : machine.nics) {
    for (const auto function : nic.functions) read_lag("", machine.pci[function.index].bus_id.to_string(), facts);
  }
  const auto parameters = device_parameters();
  if (!parameters) return facts.miss("devlink", parameters.status().message());
  for (const auto& one : *parameters) {
    if (!one.device.starts_with("pci/")) continue;
    facts.set(fmt::format("devlink.{}.{}", one.device.substr(4), one.name), text::quote(one.value, 60),
              fmt::format("devlink dev param show {} name {}", one.device, one.name));
  }
}

}  // namespace fairway::doctor
