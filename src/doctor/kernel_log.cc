#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "doctor/gather.h"
#include "topology/text.h"

// The kernel's log: its lines about GPUs, NICs, PCI Express and the IOMMU.
namespace fairway::doctor {
namespace {

namespace text = topology::text;

// The bus id that begins at `at`; "0000:1b:00" has no function.
std::optional<topology::BusId> bus_at(std::string_view line, std::size_t at, char end) {
  const auto close = line.find(end, at);
  if (close == line.npos) return {};
  auto bus = std::string(line.substr(at, close - at));
  if (bus.find('.') == std::string::npos) bus += ".0";
  return topology::BusId::parse(bus);
}

// The first bus id with a domain in a line.
std::optional<topology::BusId> bus_in(std::string_view line) {
  for (auto word : text::words(line)) {
    while (!word.empty() && (word.back() == ':' || word.back() == ',' || word.back() == ')')) word.remove_suffix(1);
    if (word.size() < 12) continue;
    if (const auto bus = topology::BusId::parse(word)) return bus;
  }
  return {};
}

// The line without what stands before the kernel's words; empty: another program's.
std::string_view message_of(std::string_view line) {
  line = text::trim(line);
  const auto close = line.starts_with('[') ? line.find(']') : line.npos;
  if (close != line.npos) return text::trim(line.substr(close + 1));
  const auto at = line.find(" kernel: ");
  if (at == line.npos) return line.starts_with("NVRM:") ? line : std::string_view{};
  line = text::trim(line.substr(at + 9));
  return line.starts_with("[") && line.find("] ") < 20 ? text::trim(line.substr(line.find("] ") + 2)) : line;
}

// Whether a driver of GPUs or NICs speaks: "mlx5_core 0000:1b:00.0: ...", "[drm:amdgpu_init [amdgpu]] *ERROR* ...",
// "NETDEV WATCHDOG: eth0 (bnxt_en): ...".
bool is_of_driver(std::string_view line) {
  constexpr std::string_view kBegins[] = {"NVRM",  "nvidia", "amdgpu", "mlx4_", "mlx5_", "bnxt_", "irdma",     "i40e",
                                          "ixgbe", "hfi1",   "ionic",  "cxgb4", "qede",  "qedr",  "habanalabs"};
  constexpr std::string_view kWhole[] = {"ice", "efa", "ena", "mana", "gve", "xe", "infiniband"};
  const auto words = text::words(message_of(line).substr(0, 200));
  for (std::size_t i = 0; i < words.size() && i < 4; ++i) {
    auto word = words[i];
    word.remove_prefix(std::min(word.find_first_not_of("[("), word.size()));
    if (word.starts_with("drm:")) word.remove_prefix(4);
    const auto name = word.substr(0, word.find_first_of("]):"));
    if (std::ranges::find(kWhole, name) != std::end(kWhole)) return true;
    if (std::ranges::any_of(kBegins, [name](auto one) { return name.starts_with(one); })) return true;
  }
  return false;
}

// Lines, in lower case, that healthy hosts have though they sound like faults: a module that nobody signed; displays,
// which servers have none of; a firmware that is slow to start; questions of tools on registers or modules that a NIC
// has not; interrupts by pins, in place of which messages are used.
bool is_harmless(std::string_view low) {
  constexpr std::string_view kHarmless[] = {"module verification failed",
                                            "[drm] cannot find any crtc",
                                            "nvidia-modeset: ",
                                            "[nvidia-drm]",
                                            "[nvidia_drm]",
                                            "timeout abort in",
                                            "access_reg(",
                                            "query module eeprom",
                                            "query_mcia",
                                            "query_module_",
                                            "can't derive routing for pci int"};
  return std::ranges::any_of(kHarmless, [low](std::string_view one) { return low.find(one) != low.npos; });
}

// "a hang", not "changed".
bool has_word(std::string_view low, std::string_view word) {
  for (auto at = low.find(word); at != low.npos; at = low.find(word, at + 1)) {
    if (at == 0 || low[at - 1] < 'a' || low[at - 1] > 'z') return true;
  }
  return false;
}

// Whether a line, in lower case, may be about a fault. Most lines of drivers are not.
bool tells_trouble(std::string_view low) {
  if (has_word(low, "hang") || has_word(low, "dead")) return true;
  constexpr std::string_view kTrouble[] = {
      "error",  "fail",     "fault",   "timeout",  "timed out",  "reset",       "fatal",  "lost",       "stuck",
      "hung",   "cannot",   "can't",   "unable",   "not respon", "no response", "uncorr", "invalid",    "illegal",
      "abort",  "corrupt",  "poison",  "overheat", "too hot",    "temperature", "assert", "unexpected", "bad ",
      "degrad", "retire",   "throttl", "violat",   "halted",     "shutting",    "panic",  "refus",      "leak",
      "exceed", "couldn't", "didn't",  "does not", "did not",    "missing"};
  return std::ranges::any_of(kTrouble, [low](std::string_view one) { return low.find(one) != low.npos; });
}

class LogReader {
 public:
  LogReader(const topology::Output& output, const Gathered& to) : output_(output), to_(to) {}

  std::string read() {
    to_.facts.set("kernel.log", "read", output_.at(1));
    for (const auto line : text::lines(output_.text)) {
      ++number_;
      read_line(line);
    }
    finish_iommu();
    finish_gpus();
    finish_hardware();
    std::string gave;
    for (const auto& [what, count] : counts_) {
      gave += fmt::format("{}{}", gave.empty() ? "" : ", ", what);
      if (count > 1) gave += fmt::format(" ({} lines)", count);
    }
    if (unjudged_ > 0) {
      const auto lines = unjudged_ == 1 ? std::string("1 line") : fmt::format("{} lines", unjudged_);
      const auto what = fmt::format("{} of drivers that nothing here judges: '{}'", lines, first_unjudged_);
      to_.facts.set("kernel.unjudged", what, output_.at(first_unjudged_line_));
      gave += (gave.empty() ? "" : ", ") + what;
    }
    return gave.empty() ? fmt::format("{} lines, none about a fault of GPUs, NICs or PCIe", number_) : gave;
  }

 private:
  void set(const std::string& name, std::string_view line, std::size_t from = 0) {
    to_.facts.set(name, text::quote(text::trim(line.substr(from)), 200), output_.at(number_));
  }

  void read_line(std::string_view line) {
    const auto has = [line](std::string_view words) { return line.find(words) != line.npos; };
    // "NVRM: Xid (PCI:0000:1b:00): 79, pid=..., GPU has fallen off the bus."
    if (const auto at = line.find("NVRM: Xid (PCI:"); at != line.npos)
      return read_code(line, at, at + 15, "xid", "XID");
    // "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    if (const auto at = line.find("SXid (PCI:"); at != line.npos) return read_code(line, at, at + 10, "sxid", "SXid");
    if (has("NVRM: ") && read_nvrm(line)) return;
    if (has("ommand line: ")) {
      const auto at = line.find("ommand line: ") + 13;
      to_.facts.set("kernel.cmdline", std::string(text::trim(line.substr(at))), output_.at(number_));
    } else if (has("Default domain type: ")) {
      domain_ = std::string(text::words(line.substr(line.find("Default domain type: ") + 21)).front());
      domain_line_ = number_;
      ++counts_["IOMMU default domain " + domain_];
    } else if (has("DMA domain TLB invalidation policy: lazy")) {
      lazy_ = true;
    } else if (has("arm-smmu")) {
      smmu_ = true;
    } else if (const auto at = line.find(": Adding to iommu group "); at != line.npos) {
      if (const auto bus = bus_in(line)) groups_[bus->to_string()] = number_;
    } else if (has("available PCIe bandwidth, limited by")) {
      read_limited(line);
    } else if (has("] type 0") && has(" class 0x")) {
      // "pci 0000:01:00.0: [144d:a80a] type 00 class 0x010802"
      if (const auto bus = bus_in(line)) classes_[bus->to_string()] = line.substr(line.find(" class 0x") + 9, 6);
    } else if (has("[Hardware Error]")) {
      read_hardware(line);
    } else if (has("DMAR: [DMA") || has("AMD-Vi: Event logged") || has("event: F_TRANSLATION")) {
      set(fmt::format("kernel.iommu_fault.{}", ++faults_), line);
      ++counts_["IOMMU faults"];
    } else if ((has("AER: ") && !has("AER: enabled")) || has("PCIe Bus Error:")) {
      if (has("ncorrect")) {
        about(line, "aer_uncorrected", "uncorrected PCIe errors (AER)");
      } else {
        about(line, "aer", "PCIe errors (AER)");
      }
    } else if (has("mlx5_core ") && (has("[error]") || has("igh temperature") || has("igh Temperature") ||
                                     has("health") || has("syndrome"))) {
      if (has("emperature")) {
        about(line, "mlx5_heat", "module overheats");
      } else if (has("Fatal error") || has("health compromised")) {
        about(line, "mlx5_fatal", "fatal errors of mlx5");
      } else {
        about(line, "mlx5", "mlx5 errors");
      }
    } else if (has("Link is Down") || has("Link down")) {
      about(line, "link_down", "links that went down");
    } else if (has("Out of memory: Killed")) {
      ++counts_["processes killed for memory"];
    } else if (is_of_driver(line)) {
      read_driver(line);
    }
  }

  // What NVIDIA's driver says of a GPU without an XID. Not every line names the GPU: those that do not are of the one
  // named before.
  bool read_nvrm(std::string_view line) {
    const auto has = [line](std::string_view words) { return line.find(words) != line.npos; };
    const auto at = line.find("(PCI:");
    const auto bus = at == line.npos ? bus_in(line) : bus_at(line, at + 5, ')');
    if (bus) gpu_ = bus->to_string();
    const bool lost = has("fallen off the bus");
    const bool bar = has(": BAR") && has(" is 0M @ ");
    const bool start = (has("RmInitAdapter") || has("rm_init_adapter")) && has("ailed");
    if (!lost && !bar && !start && !has("probe routine failed") && !has("None of the NVIDIA ")) return false;
    auto& seen = (lost ? lost_ : unusable_)[gpu_];
    if (seen.line == 0 || (bus && !seen.named))
      seen = {text::quote(text::trim(line.substr(line.find("NVRM: "))), 160), number_, bus.has_value()};
    return true;
  }

  void finish_gpus() {
    for (auto* of : {&lost_, &unusable_}) {
      if (of->size() > 1) of->erase("");  // lines before the first that names the GPU
      for (const auto& [gpu, seen] : *of) {
        const auto called = gpu.empty() ? std::string("a GPU") : gpu;
        to_.facts.set((of == &lost_ ? "lost." : "unusable.") + called, seen.words, output_.at(seen.line));
        ++counts_[called + (of == &lost_ ? " is lost" : " cannot be used")];
      }
    }
  }

  // "{1}[Hardware Error]: event severity: recoverable", and further down in the record "device_id: 0000:5d:00.0".
  void read_hardware(std::string_view line) {
    const auto at = line.find("[Hardware Error]");
    const auto open = line.rfind('{', at);
    const auto record = open == line.npos ? std::string_view{} : line.substr(open, at - open);
    auto& of = hardware_[std::string(record)];
    if (of.line == 0)
      of = {text::quote(text::trim(line.substr(at)), 160), number_, line.find("events logged") != line.npos, "host"};
    const auto severity = line.find("event severity: ");
    if (severity != line.npos) {
      of.mended = line.find("corrected", severity) != line.npos && line.find("uncorrected", severity) == line.npos;
      of.words = text::quote(text::trim(line.substr(at)), 160);
      of.line = number_;
    } else if (line.find("device_id: ") != line.npos) {
      if (const auto bus = bus_in(line)) of.bus = bus->to_string();
    }
  }

  void finish_hardware() {
    for (const auto& [record, of] : hardware_) {
      const auto* fact = of.mended ? "hardware_corrected" : "hardware";
      to_.facts.set(fmt::format("kernel.{}.{}", fact, of.bus), of.words, output_.at(of.line));
      ++counts_[of.mended ? "corrected hardware errors" : "hardware errors"];
    }
  }

  // Lines of drivers of GPUs and NICs that say what no code and no prefix does.
  void read_driver(std::string_view line) {
    const auto low = text::lower(line);
    if (is_harmless(low)) return;
    const auto has = [&low](std::string_view words) { return low.find(words) != low.npos; };
    // "3 new uncorrectable hardware errors detected in umc block"; counts of 0 are printed too
    for (const auto* none : {" 0 correctable", " 0 uncorrectable", " 0 new correctable", " 0 new uncorrectable"}) {
      if (has(none)) return;
    }
    if (has("uncorrectable hardware errors")) {
      about(line, "uncorrectable", "uncorrectable hardware errors");
    } else if (has("gpu reset begin") || has("gpu recovery failed")) {
      about(line, "reset", "resets of a GPU by its driver");
    } else if (has("tx_timeout") || has("timed out") || has(" timeout") || has("(timeout")) {
      about(line, "timeout", "timeouts of a driver");
    } else if (tells_trouble(low)) {
      if (++unjudged_ > 1) return;
      first_unjudged_ = text::quote(text::trim(message_of(line)), 120);
      first_unjudged_line_ = number_;
    }
  }

  void read_code(std::string_view line, std::size_t at, std::size_t bus_begin, const char* fact, const char* word) {
    const auto bus = bus_at(line, bus_begin, ')');
    const auto close = line.find(')', bus_begin);
    const auto code = close != line.npos && line.size() > close + 2
                          ? text::leading_unsigned(text::trim(line.substr(close + 2)))
                          : std::nullopt;
    if (!bus || !code) return;
    const auto name = fmt::format("kernel.{}.{}.{}", fact, bus->to_string(), *code);
    set(name, line, at);
    ++counts_[fmt::format("{} {} of {}", word, *code, bus->to_string())];
  }

  void about(std::string_view line, const char* fact, const std::string& what) {
    const auto bus = bus_in(line);
    const auto key = bus ? bus->to_string() : std::string("host");
    set(fmt::format("kernel.{}.{}", fact, key), line);
    ++counts_[bus ? what + " of " + key : what];
  }

  // "mlx5_core 0000:82:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:80:03.0
  // (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
  void read_limited(std::string_view line) {
    const auto bus = bus_in(line);
    const auto at = line.find(" Gb/s available");
    const auto capable = line.find("capable of ");
    if (!bus || at == line.npos || capable == line.npos) return;
    const auto from = line.rfind(' ', at - 1);
    const auto now = text::leading_double(line.substr(from == line.npos ? 0 : from));
    const auto able = text::leading_double(line.substr(capable + 11));
    if (!now || !able) return;
    const auto name = "kernel.pcie_limited." + bus->to_string();
    set(name, line, line.find(bus->to_string()));
    to_.facts.set(name + ".gbps", fmt::format("{}", *now), output_.at(number_));
    to_.facts.set(name + ".able_gbps", fmt::format("{}", *able), output_.at(number_));
    // What the function is: by its class, or by the driver that speaks.
    const auto known = classes_.find(bus->to_string());
    if (known != classes_.end()) to_.facts.set(name + ".class", known->second, output_.at(number_));
    if (is_of_driver(line)) to_.facts.set(name + ".driver", "of GPUs or NICs", output_.at(number_));
    ++counts_[fmt::format("{} has {:g} of {:g} Gb/s of PCIe", bus->to_string(), *now, *able)];
  }

  // On x86 "Translated" is what `iommu=pt` would have changed; an SMMU of arm64 translates by default.
  void finish_iommu() {
    if (!domain_.empty()) to_.facts.set("kernel.iommu.default", domain_, output_.at(domain_line_));
    if (domain_.empty() || smmu_) return;
    const std::string type = domain_ == "Translated" ? (lazy_ ? "DMA-FQ" : "DMA") : "identity";
    for (const auto& [bus, line] : groups_) {
      to_.facts.set("pci." + bus + ".iommu_type", type, output_.at(line));
    }
  }

  const topology::Output& output_;
  const Gathered& to_;
  std::size_t number_ = 0;
  std::size_t faults_ = 0;
  std::size_t domain_line_ = 0;
  std::string domain_;
  bool lazy_ = false;
  bool smmu_ = false;
  struct GpuLine {
    std::string words;
    std::size_t line = 0;
    bool named = false;
  };
  struct HardwareError {
    std::string words;
    std::size_t line = 0;
    bool mended = false;
    std::string bus;
  };
  std::string gpu_;  // the bus id that NVIDIA's driver named last
  std::map<std::string, GpuLine> lost_;
  std::map<std::string, GpuLine> unusable_;
  std::map<std::string, HardwareError> hardware_;  // by the record's number
  std::map<std::string, std::string> classes_;     // of PCI functions, by bus id
  std::size_t unjudged_ = 0;
  std::string first_unjudged_;
  std::size_t first_unjudged_line_ = 0;
  std::map<std::string, std::size_t> groups_;  // bus id, line
  std::map<std::string, std::size_t> counts_;
};

}  // namespace

std::string read_kernel_log(const topology::Output& output, const Gathered& to) {
  return LogReader(output, to).read();
}

}  // namespace fairway::doctor
