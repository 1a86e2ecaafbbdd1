#include "topology/catalog.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "topology/fact.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr NameTable<LinkFamily, 8> kFamilies{{{LinkFamily::pcie, "PCIe"},
                                              {LinkFamily::nvlink, "NVLink"},
                                              {LinkFamily::c2c, "C2C"},
                                              {LinkFamily::xgmi, "xGMI"},
                                              {LinkFamily::upi, "UPI"},
                                              {LinkFamily::socket_xgmi, "socket xGMI"},
                                              {LinkFamily::infiniband, "InfiniBand"},
                                              {LinkFamily::ethernet, "Ethernet"}}};

constexpr std::string_view kPciSig = "PCI-SIG base specification: GT/s x line coding";
constexpr std::string_view kIbta = "InfiniBand architecture specification, volume 2";
constexpr std::string_view kHalve = "the vendor's total counts both directions of all links: halve it";
constexpr auto kPcie = LinkFamily::pcie;
constexpr auto kNvlink = LinkFamily::nvlink;
constexpr auto kXgmi = LinkFamily::xgmi;
constexpr auto kUpi = LinkFamily::upi;
constexpr auto kSocket = LinkFamily::socket_xgmi;
constexpr auto kIb = LinkFamily::infiniband;
constexpr auto kEth = LinkFamily::ethernet;

// family, name, device, Gb/s a lane, lanes, GB/s a link, links, vendor's total, source, trap
constexpr auto kLinks = std::to_array<LinkGeneration>({
    {kPcie, "PCIe 1", "x16 slot", 2.0, 16, 4.0, 1, 0, kPciSig, "2.5 GT/s with 8b/10b: emulated bridges say this too"},
    {kPcie, "PCIe 2", "x16 slot", 4.0, 16, 8.0, 1, 0, kPciSig, "5 GT/s with 8b/10b"},
    {kPcie, "PCIe 3", "x16 slot", 7.877, 16, 15.75, 1, 0, kPciSig, "packets leave 0.8 to 0.9 of it"},
    {kPcie, "PCIe 4", "x16 slot", 15.754, 16, 31.51, 1, 0, kPciSig,
     "printed as 64 GB/s: both directions, before coding"},
    {kPcie, "PCIe 5", "x16 slot", 31.508, 16, 63.02, 1, 0, kPciSig, "printed as 128 GB/s: both directions, no coding"},
    {kPcie, "PCIe 6", "x16 slot", 63.015, 16, 126.03, 1, 0, kPciSig,
     "FLIT mode: of 256 bytes 236 carry packets, so 118 GB/s is the most"},
    {kNvlink, "NVLink 1", "P100", 20, 8, 20, 4, 160, "NVIDIA P100 whitepaper", kHalve},
    {kNvlink, "NVLink 2", "V100", 25, 8, 25, 6, 300, "NVIDIA V100 whitepaper", kHalve},
    {kNvlink, "NVLink 3", "A100", 50, 4, 25, 12, 600, "NVIDIA A100 whitepaper", "4 lanes of 50 Gb/s, NRZ; not 8"},
    {kNvlink, "NVLink 3", "A800", 50, 4, 25, 8, 400, "NVIDIA A800 datasheet", "8 of A100's 12 links"},
    {kNvlink, "NVLink 3", "RTX A6000 bridge", 28.125, 4, 14.0625, 4, 112.5, "NVIDIA RTX A6000 datasheet",
     "slower lanes than A100's"},
    {kNvlink, "NVLink 3", "A40 bridge", 28.125, 4, 14.0625, 4, 112.5, "NVIDIA A40 datasheet",
     "slower lanes than A100's"},
    {kNvlink, "NVLink 3", "A30 bridge", 50, 4, 25, 4, 200, "NVIDIA A30 datasheet", kHalve},
    {kNvlink, "NVLink 4", "H100 SXM, H200, H20", 100, 2, 25, 18, 900, "NVIDIA H100 whitepaper",
     "NVML says 26.562 GB/s a link, the raw line: not the base of efficiencies"},
    {kNvlink, "NVLink 4", "H100 PCIe, H100 NVL bridge", 100, 2, 25, 12, 600, "NVIDIA H100 datasheet",
     "joins pairs only"},
    {kNvlink, "NVLink 4", "H800", 100, 2, 25, 8, 400, "NVIDIA H800 datasheet", "8 of H100's 18 links"},
    {kNvlink, "NVLink 5", "B200, GB200, B300", 200, 2, 50, 18, 1800, "NVIDIA Blackwell architecture brief", kHalve},
    {LinkFamily::c2c, "NVLink-C2C", "GH200, GB200, GB300", 40, 0, 450, 1, 900,
     "NVIDIA Grace Hopper whitepaper, GB200 NVL72 and GB300 NVL72 datasheets", kHalve},
    {kXgmi, "xGMI 2", "MI100", 23, 16, 46, 3, 276, "AMD MI100 brochure", kHalve},
    {kXgmi, "xGMI 3", "MI210", 25, 16, 50, 3, 300, "AMD MI210 datasheet", kHalve},
    {kXgmi, "xGMI 3", "MI250X", 25, 16, 50, 8, 800, "AMD CDNA 2 whitepaper",
     "eight links of a package with two GPUs; pairs have one, two or four"},
    {kXgmi, "xGMI 4", "MI300X", 32, 16, 64, 7, 896, "AMD CDNA 3 whitepaper", "one link to each of seven peers"},
    {kXgmi, "xGMI 4", "MI350X, MI355X", 38.4, 16, 76.8, 7, 1075.2, "AMD MI350 series brochure", kHalve},
    {kUpi, "UPI 10.4", "Xeon Skylake, Cascade Lake", 10.4, 16, 20.8, 3, 0, "Intel Xeon Scalable technical overview",
     "20 lanes of which 16 carry data; two or three links a socket"},
    {kUpi, "UPI 11.2", "Xeon Ice Lake", 11.2, 16, 22.4, 3, 0, "Intel 3rd Gen Xeon Scalable brief",
     "peer-to-peer traffic reaches a fraction of it"},
    {kUpi, "UPI 16", "Xeon Sapphire Rapids", 16, 24, 48, 4, 0, "Intel 4th Gen Xeon Scalable technical overview",
     "GPU-NIC traffic across it is often measured at 15 to 16 GB/s"},
    {kUpi, "UPI 20", "Xeon Emerald Rapids", 20, 24, 60, 4, 0, "Intel 5th Gen Xeon Scalable brief",
     "with strict ordering peers see about 16 GB/s of it"},
    {kUpi, "UPI 24", "Xeon 6", 24, 24, 72, 6, 0, "Intel Xeon 6 product brief", ""},
    {kSocket, "xGMI 2", "EPYC 7002, 7003", 16, 16, 32, 4, 0, "AMD EPYC 7002 architecture overview",
     "a board may give one of the four links to PCIe"},
    {kSocket, "xGMI 3", "EPYC 9004, 9005", 32, 16, 64, 4, 0, "AMD EPYC 9004 architecture overview",
     "a board may give one of the four links to PCIe"},
    {kIb, "QDR", "4X port", 8, 4, 4, 1, 0, kIbta, "10 Gb/s a lane with 8b/10b: a 40G port carries 32"},
    {kIb, "FDR", "4X port", 13.64, 4, 6.82, 1, 0, kIbta, "56G is the line, 54.5 the data"},
    {kIb, "EDR", "4X port", 25, 4, 12.5, 1, 0, kIbta, ""},
    {kIb, "HDR", "4X port", 50, 4, 25, 1, 0, kIbta, "2X HDR is HDR100"},
    {kIb, "NDR", "4X port", 100, 4, 50, 1, 0, kIbta, "2X NDR is a 200 Gb/s port; active_speed is per lane"},
    {kIb, "XDR", "4X port", 200, 4, 100, 1, 0, kIbta, ""},
    {kEth, "10G lane", "10GbE port", 10, 1, 1.25, 1, 0, "IEEE 802.3", ""},
    {kEth, "25G lane", "100GbE port", 25, 4, 12.5, 1, 0, "IEEE 802.3", "25GbE is one lane, 100GbE four"},
    {kEth, "50G lane", "200GbE port", 50, 4, 25, 1, 0, "IEEE 802.3", ""},
    {kEth, "100G lane", "400GbE port", 100, 4, 50, 1, 0, "IEEE 802.3", "verbs shows 2X at 100 for a 200GbE port"},
    {kEth, "200G lane", "800GbE port", 200, 4, 100, 1, 0, "IEEE 802.3dj", ""},
});

// name, GT/s, NVLink generation and count, NICs beside it, Gb/s, source. Longer names first: the first match decides.
constexpr auto kGpus = std::to_array<GpuGeneration>({
    {"P100", 8, 1, 4, "ConnectX-4", 100, "NVIDIA DGX-1 datasheet"},
    {"V100", 8, 2, 6, "ConnectX-4 or ConnectX-5", 100, "NVIDIA DGX-1V and DGX-2 datasheets"},
    {"T4", 8, 0, 0, "ConnectX-5", 25, "NVIDIA T4 datasheet"},
    {"A100", 16, 3, 12, "ConnectX-6", 200, "NVIDIA DGX A100 datasheet"},
    {"A800", 16, 3, 8, "ConnectX-6", 200, "NVIDIA A800 datasheet"},
    {"A30", 16, 3, 4, "ConnectX-6", 200, "NVIDIA A30 datasheet"},
    {"A40", 16, 3, 4, "ConnectX-6", 200, "NVIDIA A40 datasheet"},
    {"A10", 16, 0, 0, "ConnectX-6", 100, "NVIDIA A10 datasheet"},
    {"A10G", 16, 0, 0, "EFA", 100, "AWS g5 instance page"},
    {"L4", 16, 0, 0, "ConnectX-6", 100, "NVIDIA L4 datasheet"},
    {"L40S", 16, 0, 0, "ConnectX-7 or BlueField-3", 200, "NVIDIA L40S datasheet"},
    {"H20", 32, 4, 18, "ConnectX-6, ConnectX-7 or BlueField-3", 200, "NVIDIA H20 datasheet"},
    {"H100 PCIe", 32, 4, 12, "ConnectX-7", 400, "NVIDIA H100 datasheet"},
    {"H100 NVL", 32, 4, 12, "ConnectX-7", 400, "NVIDIA H100 datasheet"},
    {"H100", 32, 4, 18, "ConnectX-7", 400, "NVIDIA DGX H100 datasheet"},
    {"H200", 32, 4, 18, "ConnectX-7", 400, "NVIDIA DGX H200 datasheet"},
    {"H800", 32, 4, 8, "ConnectX-7", 400, "NVIDIA H800 datasheet"},
    {"GH200", 32, 4, 18, "ConnectX-7", 400, "NVIDIA GH200 datasheet", 450},
    {"B200", 32, 5, 18, "ConnectX-7", 400, "NVIDIA DGX B200 datasheet"},
    {"GB200", 32, 5, 18, "ConnectX-7", 400, "NVIDIA GB200 NVL72 datasheet", 450},
    {"B300", 64, 5, 18, "ConnectX-8", 800, "NVIDIA DGX B300 datasheet"},
    {"GB300", 64, 5, 18, "ConnectX-8", 800, "NVIDIA GB300 NVL72 datasheet", 450},
    {"GB10", 16, 0, 0, "ConnectX-7", 200, "NVIDIA DGX Spark datasheet; C2C: NVIDIA at Hot Chips 2025", 300},
    {"RTX PRO 6000", 32, 0, 0, "ConnectX-8 or BlueField-3", 400, "NVIDIA RTX PRO 6000 Blackwell datasheet"},
    {"RTX PRO 5000", 32, 0, 0, "ConnectX-7", 400, "NVIDIA RTX PRO 5000 Blackwell datasheet"},
    {"RTX PRO 4500", 32, 0, 0, "ConnectX-7", 200, "NVIDIA RTX PRO 4500 Blackwell datasheet"},
    {"L40", 16, 0, 0, "ConnectX-7 or BlueField-3", 200, "NVIDIA L40 datasheet"},
    {"MI100", 16, 0, 0, "ConnectX-6", 200, "AMD MI100 brochure"},
    {"MI210", 16, 0, 0, "ConnectX-6", 200, "AMD MI210 datasheet"},
    {"MI250X", 16, 0, 0, "Slingshot-11", 200, "AMD CDNA 2 whitepaper"},
    {"MI300X", 32, 0, 0, "ConnectX-7 or Thor 2", 400, "AMD MI300X datasheet"},
    {"MI325X", 32, 0, 0, "ConnectX-7 or Thor 2", 400, "AMD MI325X datasheet"},
    {"MI350X", 32, 0, 0, "Pollara 400 or ConnectX-7", 400, "AMD MI350 series brochure"},
    {"MI355X", 32, 0, 0, "Pollara 400 or ConnectX-7", 400, "AMD MI350 series brochure"},
});

// BlueField-3 before ConnectX-7, since its name contains both.
constexpr auto kNics = std::to_array<NicGeneration>({
    {"BlueField-3", "MT41692", 32, 16, 400, "NVIDIA BlueField-3 datasheet"},
    {"BlueField-2", "MT41686", 16, 16, 200, "NVIDIA BlueField-2 datasheet"},
    {"ConnectX-4", "MT4115", 8, 16, 100, "NVIDIA ConnectX-4 VPI product brief"},
    {"ConnectX-4 Lx", "MT4117", 8, 8, 50, "NVIDIA ConnectX-4 Lx product brief"},
    {"ConnectX-5", "MT4119", 8, 16, 100, "NVIDIA ConnectX-5 product brief"},
    {"ConnectX-5 Ex", "MT4121", 16, 16, 100, "NVIDIA ConnectX-5 Ex product brief"},
    {"ConnectX-6 Dx", "MT4125", 16, 16, 200, "NVIDIA ConnectX-6 Dx product brief"},
    {"ConnectX-6 Lx", "MT4127", 16, 8, 50, "NVIDIA ConnectX-6 Lx product brief"},
    {"ConnectX-6", "MT4123", 16, 16, 200, "NVIDIA ConnectX-6 VPI product brief"},
    {"ConnectX-7", "MT4129", 32, 16, 400, "NVIDIA ConnectX-7 datasheet"},
    {"ConnectX-8", "MT4131", 64, 16, 800, "NVIDIA ConnectX-8 SuperNIC datasheet"},
    {"BCM57608", "", 32, 16, 400, "Broadcom Thor 2 product brief"},
    {"BCM57508", "", 16, 16, 200, "Broadcom Thor product brief"},
    {"E810", "", 16, 16, 100, "Intel E810 product brief"},
    {"EFA", "efa0", 8, 16, 100, "AWS p4d instance page: 4 x 100 Gb/s"},
    {"EFA v2", "efa1", 8, 16, 100, "AWS p5 instance page: 32 x 100 Gb/s"},
    {"EFA v3", "efa2", 16, 16, 200, "AWS p5en instance page: 16 x 200 Gb/s"},
    {"EFA v4", "efa3", 32, 16, 400, "AWS p6-b200 instance page: 8 x 400 Gb/s"},
});

std::string upper(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  return out;
}

// Whether `text` has `word` as a whole word: "A10" is not in "A100", nor "H20" in "H200".
bool has_word(const std::string& text, const std::string& word) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(LinkFamily family) {
  return name_of(kFamilies, family);
}

std::span<const LinkGeneration> link_catalogue() {
  return kLinks;
}
std::span<const GpuGeneration> gpu_catalogue() {
  return kGpus;
}
std::span<const NicGeneration> nic_catalogue() {
  return kNics;
}

const GpuGeneration* find_gpu_generation(std::string_view model) {
  const auto text = upper(model);
  for (const auto& gpu : kGpus) {
    if (has_word(text, upper(gpu.name))) return &gpu;
  }
  return nullptr;
}

const NicGeneration* find_nic_generation(std::string_view model_or_type) {
  const auto text = upper(model_or_type);
  const NicGeneration* best = nullptr;
  for (const auto& nic : kNics) {
    if (!nic.hca_type.empty() && has_word(text, upper(nic.hca_type))) return &nic;
    if (!has_word(text, upper(nic.name))) continue;
    // "ConnectX-6 Dx" also matches "ConnectX-6": the longer name wins. BlueField-3 stays before ConnectX-7.
    if (best == nullptr || nic.name.starts_with(best->name)) best = &nic;
  }
  return best;
}

const NicGeneration* find_nic_generation(const Machine& machine, const Nic& nic) {
  const bool placed = !nic.functions.empty();
  // Generations of EFA share their name: only the device id tells them apart.
  if (placed && machine.pci[nic.functions.front().index].vendor_id.value_or(0) == kVendorAmazon)
    return find_nic_generation(fmt::format("{:x}", machine.pci[nic.functions.front().index].device_id.value_or(0)));
  if (nic.model) {
    if (const auto* generation = find_nic_generation(*nic.model)) return generation;
  }
  if (!nic.rdma) return nullptr;
  const auto& type = machine.rdma[nic.rdma.index].hca_type;
  return type ? find_nic_generation(*type) : nullptr;
}

std::string catalogue_text() {
  std::string out = "Nominal, per direction. The totals that vendors print count both directions of all links.\n\n";
  out += fmt::format("{:<12} {:<10} {:<27} {:>8} {:>5} {:>8} {:>5} {:>9} {:>8}  {}\n", "family", "name", "of",
                     "Gb/lane", "lanes", "GB/s", "links", "GB/s all", "printed", "source; trap");
  for (const auto& row : kLinks) {
    const auto printed = row.vendor_total_gbs > 0 ? fmt::format("{:g}", row.vendor_total_gbs) : "-";
    out += fmt::format("{:<12} {:<10} {:<27} {:>8.6g} {:>5} {:>8.6g} {:>5} {:>9.6g} {:>8}  {}{}{}\n",
                       to_string(row.family), row.name, row.device, row.lane_gbps, row.lanes, row.link_gbs, row.links,
                       row.link_gbs * row.links, printed, row.source, row.trap.empty() ? "" : "; ", row.trap);
  }
  out += fmt::format("\n{:<8} {:>10} {:>7} {:>6}  {:<38} {:>5}  {}\n", "GPU", "PCIe GT/s", "NVLink", "links",
                     "NICs usually beside it", "Gb/s", "source");
  for (const auto& gpu : kGpus) {
    out += fmt::format("{:<8} {:>10g} {:>7} {:>6}  {:<38} {:>5g}  {}\n", gpu.name, gpu.pcie_gts,
                       gpu.nvlink == 0 ? std::string("-") : std::to_string(gpu.nvlink), gpu.nvlinks, gpu.nics,
                       gpu.nic_gbps, gpu.source);
  }
  out += fmt::format("\n{:<14} {:<8} {:>10} {:>6} {:>10}  {}\n", "NIC", "type", "PCIe GT/s", "lanes", "port Gb/s",
                     "source");
  for (const auto& nic : kNics) {
    out += fmt::format("{:<14} {:<8} {:>10g} {:>6} {:>10g}  {}\n", nic.name, nic.hca_type, nic.pcie_gts, nic.pcie_lanes,
                       nic.port_gbps, nic.source);
  }
  return out;
}

// No text in the table needs escapes.
std::string catalogue_json() {
  const auto known = [](double value) { return value == 0 ? std::string("null") : fmt::format("{}", value); };
  std::string out = "{\"format\": \"fairway-catalog\", \"version\": 1, \"unit\": \"GB/s per direction\", \"links\": [";
  const char* comma = "";
  for (const auto& row : kLinks) {
    out += fmt::format(
        "{}\n  {{\"family\": \"{}\", \"name\": \"{}\", \"device\": \"{}\", \"lane_gbps\": {}, \"lanes\": {}, "
        "\"link_gbs\": {}, \"links\": {}, \"vendor_total_gbs\": {}, \"source\": \"{}\", \"trap\": \"{}\"}}",
        comma, to_string(row.family), row.name, row.device, row.lane_gbps, known(row.lanes), row.link_gbs, row.links,
        known(row.vendor_total_gbs), row.source, row.trap);
    comma = ",";
  }
  out += "],\n\"gpus\": [";
  comma = "";
  for (const auto& gpu : kGpus) {
    out += fmt::format(
        "{}\n  {{\"name\": \"{}\", \"pcie_gts\": {}, \"nvlink\": {}, \"nvlinks\": {}, \"nics\": \"{}\", "
        "\"nic_gbps\": {}, \"source\": \"{}\"}}",
        comma, gpu.name, gpu.pcie_gts, known(gpu.nvlink), gpu.nvlinks, gpu.nics, known(gpu.nic_gbps), gpu.source);
    comma = ",";
  }
  out += "],\n\"nics\": [";
  comma = "";
  for (const auto& nic : kNics) {
    out += fmt::format(
        "{}\n  {{\"name\": \"{}\", \"hca_type\": \"{}\", \"pcie_gts\": {}, \"pcie_lanes\": {}, \"port_gbps\": {}, "
        "\"source\": \"{}\"}}",
        comma, nic.name, nic.hca_type, nic.pcie_gts, nic.pcie_lanes, nic.port_gbps, nic.source);
    comma = ",";
  }
  return out + "]}\n";
}

namespace {

std::optional<LinkFamily> family_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return LinkFamily::nvlink;
    case LinkKind::xgmi: return LinkFamily::xgmi;
    case LinkKind::c2c: return LinkFamily::c2c;
  }
  return {};
}

// "RTX A6000 bridge" matches models with the word A6000. Only model names have digits.
bool names_model(std::string_view device, std::string_view model) {
  const auto named = text::words(model);
  for (auto word : text::words(device)) {
    while (word.ends_with(',')) word.remove_suffix(1);
    if (word.find_first_of("0123456789") == word.npos) continue;
    for (const auto name : named) {
      // "V100-SXM2-32GB"
      if (name == word || (name.starts_with(word) && name[word.size()] == '-')) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<double> catalogue_link_gbs(LinkKind kind, std::uint32_t generation, std::string_view model) {
  const auto family = family_of(kind);
  const auto name = "NVLink " + std::to_string(generation);
  std::optional<double> common;
  bool agree = true;
  for (const auto& row : link_catalogue()) {
    if (row.family != family) continue;
    if (names_model(row.device, model) && (generation == 0 || kind != LinkKind::nvlink || row.name == name)) {
      return row.link_gbs;
    }
    if (row.name != name) continue;
    agree = agree && common.value_or(row.link_gbs) == row.link_gbs;
    common = row.link_gbs;
  }
  // A generation with the same rate on all devices.
  return kind == LinkKind::nvlink && agree ? common : std::nullopt;
}

void fill_link_rates(Machine& machine) {
  for (auto& link : machine.links) {
    const auto gpu = link.a.kind == NodeKind::gpu ? link.a : link.b;
    if (link.gbs_per_link || gpu.kind != NodeKind::gpu || gpu.index >= machine.gpus.size()) continue;
    const auto model = machine.gpus[gpu.index].model.value_or("");
    if (link.kind == LinkKind::nvlink && !link.generation) {
      const auto* known = find_gpu_generation(model);
      if (known != nullptr && known->nvlink > 0) link.generation.set(known->nvlink, Source::catalogue);
    }
    if (const auto gbs = catalogue_link_gbs(link.kind, link.generation.value_or(0), model)) {
      link.gbs_per_link.set(*gbs, Source::catalogue);
    }
  }
}

}  // namespace fairway::topology
