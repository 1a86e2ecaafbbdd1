#include <array>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/text.h"

// The driver's word on the state of GPUs. NVML is opened at run time; the declarations are the few of its stable ABI
// that are used (NVML API reference).
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

}  // namespace fairway::doctor
