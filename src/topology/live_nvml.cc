#include <array>
#include <map>
#include <memory>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "topology/discover.h"
#include "topology/pci.h"
#include "topology/text.h"

// NVML is opened at run time, so that one program runs with and without the driver. The declarations below are the part
// of its stable ABI that is used (NVML API reference, "Device Queries" and "NvLink Methods").
namespace fairway::topology {
namespace {

using NvmlDevice = void*;
using NvmlResult = int;
constexpr NvmlResult kSuccess = 0;
constexpr std::size_t kPeersAsked = 64;  // every pair is a call to the driver
constexpr unsigned kMaxNvLinks = 36;     // more than any GPU has

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlBar1 {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t
enum P2pCaps : int { kCapsRead = 0, kCapsWrite = 1, kCapsNvlink = 2, kCapsAtomics = 3 };
enum P2pStatus : int { kP2pOk = 0 };

std::string p2p_text(int status) {
  switch (status) {
    case 1: return "chipset not supported";
    case 2: return "GPU not supported";
    case 3: return "I/O hub topology not supported";
    case 4: return "disabled by a registry key";
    case 5: return "not supported";
    default: return "unknown reason";
  }
}

// NVML numbers revisions (nvmlNvlinkVersion_t): 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0 are 1 to 7. 0 for others.
std::uint32_t nvlink_generation(unsigned version) {
  constexpr std::array<std::uint32_t, 8> kGenerations{0, 1, 2, 2, 3, 3, 4, 5};
  return version < kGenerations.size() ? kGenerations[version] : 0;
}

class Nvml {
 public:
  ~Nvml() {
    if (shutdown_ != nullptr) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml() = default;
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  Status open() {
    library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      return {ErrorCode::not_found, "no NVIDIA driver here: libnvidia-ml.so.1 cannot be opened"};
    }
    NvmlResult (*init)() = nullptr;
    if (!find("nvmlInit_v2", init))
      return {ErrorCode::unsupported, "libnvidia-ml.so.1 has no nvmlInit_v2: the driver is too old"};
    if (const auto result = init(); result != kSuccess) {
      return {ErrorCode::unsupported, "nvmlInit failed: " + error_text(result)};
    }
    find("nvmlShutdown", shutdown_);
    return {};
  }

  // Leaves the function empty if this driver lacks it.
  template <class F>
  bool find(const char* name, F*& function) {
    function = reinterpret_cast<F*>(::dlsym(library_, name));
    return function != nullptr;
  }

  std::string error_text(NvmlResult result) {
    const char* (*to_text)(NvmlResult) = nullptr;
    return find("nvmlErrorString", to_text) ? text::quote(to_text(result), 120) : fmt::format("error {}", result);
  }

 private:
  void* library_ = nullptr;
  NvmlResult (*shutdown_)() = nullptr;
};

BusId bus_id_of(const NvmlPciInfo& info) {
  return {info.domain, static_cast<std::uint8_t>(info.bus), static_cast<std::uint8_t>(info.device), 0};
}

class NvmlReader {
 public:
  NvmlReader(Nvml& nvml, Machine& machine) : nvml_(nvml), machine_(machine) {
    nvml.find("nvmlSystemGetDriverVersion", driver_version_);
    nvml.find("nvmlDeviceGetCount_v2", count_);
    nvml.find("nvmlDeviceGetHandleByIndex_v2", handle_);
    nvml.find("nvmlDeviceGetPciInfo_v3", pci_info_);
    nvml.find("nvmlDeviceGetName", name_);
    nvml.find("nvmlDeviceGetUUID", uuid_);
    nvml.find("nvmlDeviceGetSerial", serial_);
    nvml.find("nvmlDeviceGetMemoryInfo", memory_);
    nvml.find("nvmlDeviceGetBAR1MemoryInfo", bar1_);
    nvml.find("nvmlDeviceGetCudaComputeCapability", capability_);
    nvml.find("nvmlDeviceGetCurrPcieLinkGeneration", current_generation_);
    nvml.find("nvmlDeviceGetCurrPcieLinkWidth", current_width_);
    nvml.find("nvmlDeviceGetMaxPcieLinkGeneration", max_generation_);
    nvml.find("nvmlDeviceGetMaxPcieLinkWidth", max_width_);
    nvml.find("nvmlDeviceGetNvLinkState", link_state_);
    nvml.find("nvmlDeviceGetNvLinkVersion", link_version_);
    nvml.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote_);
    nvml.find("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote_type_);
    nvml.find("nvmlDeviceGetP2PStatus", p2p_status_);
  }

  Status read() {
    std::array<char, 96> text{};
    if (driver_version_ != nullptr && driver_version_(text.data(), text.size() - 1) == kSuccess) {
      machine_.gpu_driver.set(text::quote(text.data()), Source::nvml);
    }
    unsigned count = 0;
    if (count_ == nullptr || handle_ == nullptr || pci_info_ == nullptr || count_(&count) != kSuccess || count > 1024) {
      return {ErrorCode::unsupported, "the NVIDIA driver does not list its GPUs"};
    }
    count_of_driver_ = count;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      if (const auto result = handle_(i, &device); result == kSuccess) {
        read_gpu(i, device);
      } else {
        add_note(machine_, NoteKind::unreadable, fmt::format("GPU{}", i),
                 fmt::format("the driver has no handle of it ({}): it may have fallen off the bus",
                             nvml_.error_text(result)));
      }
    }
    renumber();
    join_links();
    read_peers();
    return {};
  }

 private:
  struct Found {
    NvmlDevice device = nullptr;
    std::uint32_t number = 0;
  };

  void read_gpu(unsigned number, NvmlDevice device) {
    NvmlPciInfo info{};
    if (pci_info_(device, &info) != kSuccess) return;
    const auto bus = bus_id_of(info);
    auto pci = find_pci(machine_, bus);
    if (!pci) {
      // A container may show the device but not its place on the bus.
      PciDevice unknown;
      unknown.bus_id = bus;
      unknown.vendor_id.set(info.pci_device_id & 0xffff, Source::nvml);
      unknown.device_id.set(info.pci_device_id >> 16, Source::nvml);
      unknown.class_code.set(0x030200, Source::nvml);
      pci = Ref<PciDevice>(machine_.pci.size());
      machine_.pci.push_back(std::move(unknown));
      add_note(machine_, NoteKind::unknown, bus.to_string(),
               "NVML lists this GPU and sysfs does not: its place in the tree is unknown");
    }
    Gpu* gpu = nullptr;
    for (auto& known : machine_.gpus) {
      if (known.pci == pci) gpu = &known;
    }
    if (gpu == nullptr) {
      machine_.gpus.emplace_back();
      gpu = &machine_.gpus.back();
      gpu->pci = pci;
      gpu->ordinal = number;
    }
    found_[bus] = {device, number};
    read_identity(*gpu, device);
    read_pcie(machine_.pci[pci.index].link, device);
    read_links(*gpu, device);
  }

  void read_identity(Gpu& gpu, NvmlDevice device) {
    std::array<char, 128> text{};
    const auto size = static_cast<unsigned>(text.size() - 1);
    gpu.vendor.learn("NVIDIA", Source::nvml);
    if (name_ != nullptr && name_(device, text.data(), size) == kSuccess)
      gpu.model.set(text::quote(text.data()), Source::nvml);
    if (uuid_ != nullptr && uuid_(device, text.data(), size) == kSuccess)
      gpu.uuid.set(text::quote(text.data()), Source::nvml);
    if (serial_ != nullptr && serial_(device, text.data(), size) == kSuccess)
      gpu.serial.set(text::quote(text.data()), Source::nvml);
    int major = 0;
    int minor = 0;
    if (capability_ != nullptr && capability_(device, &major, &minor) == kSuccess) {
      gpu.architecture.set(fmt::format("sm_{}{}", major, minor), Source::nvml);
    }
    NvmlMemory memory{};
    if (memory_ != nullptr && memory_(device, &memory) == kSuccess) gpu.memory_bytes.set(memory.total, Source::nvml);
    NvmlBar1 bar1{};
    if (bar1_ != nullptr && bar1_(device, &bar1) == kSuccess) gpu.bar1_bytes.set(bar1.total, Source::nvml);
  }

  // The driver knows what a virtual machine's sysfs may hide. An idle GPU lowers its link's generation: sysfs shows the
  // same, so a learned value stays.
  void read_pcie(PcieLink& link, NvmlDevice device) {
    static constexpr std::array<double, 7> kGts{0, 2.5, 5, 8, 16, 32, 64};
    const auto ask = [device](NvmlResult (*f)(NvmlDevice, unsigned*)) -> unsigned {
      unsigned value = 0;
      return f != nullptr && f(device, &value) == kSuccess ? value : 0;
    };
    const auto speed = [](Fact<double>& fact, unsigned generation) {
      if (generation > 0 && generation < kGts.size() && fact.value_or(0) == 0) fact.set(kGts[generation], Source::nvml);
    };
    const auto width = [](Fact<std::uint32_t>& fact, unsigned lanes) {
      if (lanes > 0 && lanes <= 64 && fact.value_or(0) == 0) fact.set(lanes, Source::nvml);
    };
    speed(link.speed_gts, ask(current_generation_));
    speed(link.max_speed_gts, ask(max_generation_));
    width(link.width, ask(current_width_));
    width(link.max_width, ask(max_width_));
  }

  void read_links(Gpu& gpu, NvmlDevice device) {
    if (link_state_ == nullptr) return;
    gpu.nvlinks.clear();
    for (unsigned i = 0; i < kMaxNvLinks; ++i) {
      int active = 0;
      if (link_state_(device, i, &active) != kSuccess) continue;  // no such link
      auto& port = gpu.nvlinks.emplace_back();
      port.index = i;
      port.active.set(active != 0, Source::nvml);
      unsigned version = 0;
      if (link_version_ != nullptr && link_version_(device, i, &version) == kSuccess) {
        if (const auto generation = nvlink_generation(version)) port.version.set(generation, Source::nvml);
      }
      int type = -1;
      if (active != 0 && link_remote_type_ != nullptr && link_remote_type_(device, i, &type) == kSuccess) {
        if (type >= 0 && type <= 2)
          port.remote_kind.set(type == 0 ? "GPU" : type == 1 ? "CPU" : "NVSwitch", Source::nvml);
      }
      NvmlPciInfo remote{};
      if (active != 0 && link_remote_ != nullptr && link_remote_(device, i, &remote) == kSuccess) {
        const auto bus = bus_id_of(remote);
        // A fabric that hides its switches returns nothing.
        if (!(bus == BusId{}) && remote.domain != 0xffffffff) port.remote.set(bus, Source::nvml);
      }
    }
  }

  // NVML's numbers are nvidia-smi's. GPUs that it does not list come behind all of them.
  void renumber() {
    std::uint32_t next = count_of_driver_;
    for (const auto& [bus, found] : found_) next = std::max(next, found.number + 1);
    for (auto& gpu : machine_.gpus) {
      const auto found = gpu.pci ? found_.find(machine_.pci[gpu.pci.index].bus_id) : found_.end();
      gpu.ordinal = found != found_.end() ? found->second.number : next++;
    }
  }

  // Links by the pair of their ends.
  void join_links() {
    std::map<std::pair<NodeRef, NodeRef>, DeviceLink> joined;
    std::map<BusId, NodeRef> ends;
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      if (machine_.gpus[i].pci) ends[machine_.pci[machine_.gpus[i].pci.index].bus_id] = {NodeKind::gpu, i};
    }
    for (std::uint32_t i = 0; i < machine_.nv_switches.size(); ++i) {
      const auto pci = machine_.nv_switches[i].pci;
      if (pci) ends[machine_.pci[pci.index].bus_id] = {NodeKind::nv_switch, i};
    }
    std::optional<NodeRef> hidden;  // the NVSwitches of a virtual machine, drawn as one
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      for (const auto& port : machine_.gpus[i].nvlinks) {
        if (!port.active.value_or(false)) continue;
        const NodeRef gpu{NodeKind::gpu, i};
        auto end = port.remote ? ends.find(*port.remote) : ends.end();
        NodeRef other;
        if (end != ends.end()) {
          other = end->second;
        } else if (port.remote_kind.value_or("") == "CPU") {
          other = {NodeKind::package, 0};
          if (machine_.packages.empty()) continue;
        } else if (port.remote_kind.value_or("") != "GPU") {
          if (!hidden) {
            hidden = NodeRef{NodeKind::nv_switch, static_cast<std::uint32_t>(machine_.nv_switches.size())};
            machine_.nv_switches.emplace_back();
            add_note(machine_, NoteKind::inferred, "NVSwitch",
                     "NVLinks end at switches that are not on this machine's bus: drawn as one");
          }
          other = *hidden;
        } else {
          add_note(machine_, NoteKind::unknown, node_name(machine_, gpu),
                   "has NVLinks to GPUs that are not visible here");
          continue;
        }
        // Both GPUs report a direct link: count it at the lower one.
        if (other.kind == NodeKind::gpu && other < gpu) continue;
        auto& link = joined[{gpu, other}];
        link.a = gpu;
        link.b = other;
        link.count.set(link.count.value_or(0) + 1, Source::nvml);
        link.active = link.count;
        if (port.version) link.generation = port.version;
      }
    }
    machine_.links.clear();
    for (auto& [ends_of, link] : joined) machine_.links.push_back(link);
  }

  void read_peers() {
    if (p2p_status_ == nullptr) return;
    if (machine_.gpus.size() > kPeersAsked) {
      add_note(machine_, NoteKind::left_out, "access between GPUs",
               fmt::format("{} GPUs: the driver is asked of {} at most", machine_.gpus.size(), kPeersAsked));
      return;
    }
    const auto device_of = [this](const Gpu& gpu) -> NvmlDevice {
      const auto found = gpu.pci ? found_.find(machine_.pci[gpu.pci.index].bus_id) : found_.end();
      return found != found_.end() ? found->second.device : nullptr;
    };
    machine_.peers.clear();
    for (std::size_t a = 0; a < machine_.gpus.size(); ++a) {
      for (std::size_t b = 0; b < machine_.gpus.size(); ++b) {
        const auto from = device_of(machine_.gpus[a]);
        const auto to = device_of(machine_.gpus[b]);
        if (a == b || from == nullptr || to == nullptr) continue;
        PeerAccess peer;
        peer.from = Ref<Gpu>(a);
        peer.to = Ref<Gpu>(b);
        const auto ask = [&](int caps, Fact<bool>& fact) {
          int status = -1;
          if (p2p_status_(from, to, caps, &status) != kSuccess) return;
          fact.set(status == kP2pOk, Source::nvml);
          if (status != kP2pOk && caps == kCapsRead) peer.refusal.set(p2p_text(status), Source::nvml);
        };
        ask(kCapsRead, peer.read);
        ask(kCapsWrite, peer.write);
        ask(kCapsAtomics, peer.atomics);
        machine_.peers.push_back(std::move(peer));
      }
    }
  }

  Nvml& nvml_;
  Machine& machine_;
  std::uint32_t count_of_driver_ = 0;
  std::map<BusId, Found> found_;
  NvmlResult (*driver_version_)(char*, unsigned) = nullptr;
  NvmlResult (*count_)(unsigned*) = nullptr;
  NvmlResult (*handle_)(unsigned, NvmlDevice*) = nullptr;
  NvmlResult (*pci_info_)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlResult (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlResult (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlResult (*serial_)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlResult (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlResult (*bar1_)(NvmlDevice, NvmlBar1*) = nullptr;
  NvmlResult (*capability_)(NvmlDevice, int*, int*) = nullptr;
  NvmlResult (*current_generation_)(NvmlDevice, unsigned*) = nullptr;
  NvmlResult (*current_width_)(NvmlDevice, unsigned*) = nullptr;
  NvmlResult (*max_generation_)(NvmlDevice, unsigned*) = nullptr;
  NvmlResult (*max_width_)(NvmlDevice, unsigned*) = nullptr;
  NvmlResult (*link_state_)(NvmlDevice, unsigned, int*) = nullptr;
  NvmlResult (*link_version_)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlResult (*link_remote_)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  NvmlResult (*link_remote_type_)(NvmlDevice, unsigned, int*) = nullptr;
  NvmlResult (*p2p_status_)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
};

}  // namespace

Status read_nvml(Machine& machine) {
  Nvml nvml;
  if (auto status = nvml.open(); !status) return status;
  return NvmlReader(nvml, machine).read();
}

}  // namespace fairway::topology
