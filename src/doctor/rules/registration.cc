#include <algorithm>

#include "doctor/rules/common.h"

// Memory for RDMA: what lets a NIC reach a GPU's, and how much may be pinned.
namespace fairway::doctor {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Release "5.12.0-30" as 512; 0 where it is none.
unsigned kernel_number(const Machine& machine) {
  const auto release = machine.kernel.value_or("");
  const auto dot = release.find('.');
  if (dot == std::string::npos) return 0;
  const auto major = topology::text::to_u32(std::string_view(release).substr(0, dot));
  const auto minor = topology::text::leading_unsigned(std::string_view(release).substr(dot + 1));
  return major && minor ? *major * 100 + static_cast<unsigned>(std::min<std::uint64_t>(*minor, 99)) : 0;
}

bool serves_nvidia(const Machine& machine) {
  if (rails(machine).empty()) return false;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    if (is_nvidia(machine, gpu)) return true;
  }
  return false;
}

void no_way(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (!serves_nvidia(machine)) return say.absent();
  const auto* modules = look.facts.find("kernel.modules");
  if (modules == nullptr) return say.lacks("loaded kernel modules: " + look.facts.why_not("kernel.modules"));
  if (look.facts.find("kernel.module.nvidia_peermem") != nullptr ||
      look.facts.find("kernel.module.nv_peer_mem") != nullptr)
    return;
  const auto kind = look.facts.text("gpu.kernel_module");
  const auto dmabuf = look.facts.text("gpu.dmabuf");
  if (kind.empty() && dmabuf.empty())
    return say.lacks("whether the driver's kernel module is the open one is not known");
  const auto kernel = kernel_number(machine);
  const bool by_dmabuf = dmabuf == "yes" || (dmabuf.empty() && kind == "open" && (kernel == 0 || kernel >= 512));
  if (by_dmabuf) return;
  Finding finding;
  finding.title = "No NIC can reach GPU memory: neither nvidia_peermem nor dma-buf is there";
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) finding.devices.push_back(gpu_ref(gpu));
  finding.evidence.push_back({"nvidia_peermem is not loaded", modules->where});
  if (!kind.empty()) finding.evidence.push_back(evidence_of(look.facts, "gpu.kernel_module", "kernel module: " + kind));
  if (!dmabuf.empty()) finding.evidence.push_back(evidence_of(look.facts, "gpu.dmabuf", "dma-buf: " + dmabuf));
  if (machine.kernel)
    finding.evidence.push_back({"kernel " + *machine.kernel, source_of(machine.kernel.source, "osrelease")});
  std::vector<predict::Flow> flows;
  for (const auto nic : rails(machine)) {
    for (auto& flow : flows_through(machine, nic_ref(nic))) {
      if (flow.from.kind == predict::EndpointKind::gpu) flows.push_back(flow);
    }
  }
  put(finding, cost_of_share(look, flows, 0.5));  // nccl-tests#29: twice as fast after it was enabled
  finding.cause = "gpu registration";
  finding.fix = {"modprobe nvidia_peermem",
                 "# or the open kernel modules of the driver on kernel 5.12 or newer: dma-buf"};
  finding.advice = "Until then programs copy through host memory.";
  say.add(std::move(finding));
}

void unbound(const Look& look, Saying& say) {
  if (!serves_nvidia(look.machine())) return say.absent();
  if (look.facts.find("kernel.modules") == nullptr)
    return say.lacks("loaded kernel modules: " + look.facts.why_not("kernel.modules"));
  const auto* peermem = look.facts.find("kernel.module.nvidia_peermem");
  if (peermem == nullptr) return;  // dma-buf, or the rule above
  const auto* holders = look.facts.find("kernel.holders.ib_core");
  if (holders == nullptr) holders = look.facts.find("kernel.holders.ib_uverbs");
  if (holders == nullptr) return say.lacks("who uses ib_core: " + look.facts.why_not("kernel.holders.ib_core"));
  if (holders->value.find("nvidia_peermem") != std::string::npos) return;
  if (look.facts.find("kernel.memory_peers.nv_mem") != nullptr) return;
  Finding finding;
  finding.title = "nvidia_peermem is loaded, and the RDMA stack does not use it";
  finding.level = Level::warning;
  finding.evidence = {{"nvidia_peermem is loaded", peermem->where},
                      {"users of ib_core: " + (holders->value.empty() ? "none" : holders->value), holders->where}};
  std::vector<predict::Flow> flows;
  for (const auto nic : rails(look.machine())) {
    for (auto& flow : flows_through(look.machine(), nic_ref(nic))) {
      if (flow.from.kind == predict::EndpointKind::gpu) flows.push_back(flow);
    }
  }
  put(finding, cost_of_share(look, flows, 0.5));
  finding.cause = "gpu registration";
  finding.fix = {"dkms status; modinfo nvidia_peermem    # built against which RDMA stack?",
                 "# install the driver again after the RDMA stack that is in use, or use dma-buf"};
  finding.advice = "Programs then stage silently: NCCL says that GPUDirect RDMA is disabled, perftest may still work.";
  say.add(std::move(finding));
}

void small_bar(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (!serves_nvidia(machine)) return say.absent();
  std::vector<NodeRef> small;
  Finding finding;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto& one = machine.gpus[gpu];
    if (!one.bar1_bytes || !one.memory_bytes) {
      say.lacks(fmt::format("GPU{}: the size of its BAR1 or memory is not recorded", one.ordinal));
      continue;
    }
    // Below a quarter of its memory, and small in itself: a pool of 1 GiB does not fit.
    if (*one.bar1_bytes > 1ULL << 30 || *one.bar1_bytes * 4 > *one.memory_bytes) continue;
    small.push_back(gpu_ref(gpu));
    if (finding.evidence.size() < 4) {
      finding.evidence.push_back({fmt::format("GPU{}: BAR1 {} MiB of {} MiB of memory", one.ordinal,
                                              *one.bar1_bytes >> 20, *one.memory_bytes >> 20),
                                  source_of(one.bar1_bytes.source, "BAR1")});
    }
  }
  if (small.empty()) return;
  finding.title = fmt::format("{}: the window for NICs is smaller than a pool", folded_names(machine, small));
  finding.devices = small;
  finding.path = paths_text(machine, flows_through(machine, small.front()));
  finding.fix = {"# BIOS: Above 4G Decoding and Resizable BAR on", "nvidia-smi -q -d MEMORY | grep -A3 BAR1"};
  finding.advice = "Registration of more than the window fails (a T4 with 256 MB: above about 200 MB).";
  say.add(std::move(finding));
}

void memlock(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (rails(machine).empty()) return say.absent();
  const auto* limit = look.facts.find("limit.memlock");
  if (limit == nullptr) return say.lacks("the limit of locked memory: " + look.facts.why_not("limit.memlock"));
  const auto bytes = look.facts.number("limit.memlock");
  if (!bytes || *bytes >= 16 * kGiB) return;  // "unlimited" is no number
  Finding finding;
  finding.level = *bytes < 1 * kGiB ? Level::broken : Level::warning;
  finding.title = fmt::format("Only {:.0f} MiB may be locked: registration of more fails", *bytes / 1024 / 1024);
  finding.path = "every RDMA path of this process";
  finding.evidence.push_back({fmt::format("Max locked memory {:.0f} bytes", *bytes), limit->where});
  finding.fix = {"ulimit -l unlimited    # before the job, as root or with the limit below",
                 "echo '* - memlock unlimited' >> /etc/security/limits.conf",
                 "# systemd: LimitMEMLOCK=infinity; containers: --ulimit memlock=-1; Slurm: "
                 "PropagateResourceLimitsExcept=MEMLOCK"};
  finding.advice = "This is the limit of the process that looked: run the doctor inside the job.";
  say.add(std::move(finding));
}

void no_huge_pages(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  if (rails(machine).empty()) return say.absent();
  const auto pages = look.facts.below("memory.hugepages");
  if (pages.empty()) return say.lacks("huge pages: " + look.facts.why_not("memory.hugepages"));
  for (const auto& [name, seen] : pages) {
    if (topology::text::to_unsigned(seen->value).value_or(0) > 0) return;
  }
  Finding finding;
  finding.title = "No huge pages are set aside for host memory pools";
  finding.level = Level::note;
  finding.evidence.push_back({"all counts are 0", pages.front().second->where});
  finding.fix = {
      "echo 4096 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages    # 8 GiB, for each node"};
  finding.advice = "Pools of more than 1 GiB register faster with them, and the NIC's translation cache misses less.";
  say.add(std::move(finding));
}

void reads_refused(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool reads = false;
  bool writes_work = false;
  const Measurement* failed = nullptr;
  for (const auto& row : look.measured) {
    if (row.operation == Operation::write && !row.failed) writes_work = true;
    if (row.operation == Operation::read) {
      reads = true;
      if (row.failed) failed = &row;
    }
  }
  if (rails(machine).empty() && !reads) return say.absent();
  if (!reads) return say.lacks("no measured RDMA reads: --measured gives them");
  if (failed == nullptr || !writes_work) return;
  Finding finding;
  finding.title = fmt::format("RDMA reads fail where writes work{}", failed->gpu_memory ? " (GPU memory)" : "");
  finding.level = Level::broken;
  finding.confidence = Confidence::measured;
  if (const auto nic = nic_of(machine, *failed)) finding.devices = {nic_ref(*nic)};
  finding.path = row_text(machine, *failed);
  finding.evidence.push_back({failed->problem, fmt::format("{} ({})", failed->where, failed->program)});
  finding.fix = {"# use writes alone for this pair, or a NIC behind the same switch as the GPU"};
  finding.advice = "Some chipsets pass writes between devices and not reads.";
  say.add(std::move(finding));
}

constexpr Rule kRules[] = {
    {"no-gpu-registration", Family::registration, "NICs cannot reach GPU memory",
     "Programs stage in host memory: twice as fast after it was enabled; 33 became 93 GB/s.",
     "nvidia_peermem is not loaded, and dma-buf is not there (proprietary kernel module, or a kernel before 5.12).",
     "nvidia_peermem, or the open kernel modules.", "nccl-tests#29, nccl#1412", no_way},
    {"peermem-unbound", Family::registration, "nvidia_peermem is loaded and not bound to the RDMA stack",
     "Silent staging.", "nvidia_peermem is not among the users of ib_core, and no memory peer is registered.",
     "The driver built against the RDMA stack in use.", "nccl#1537, nccl#1939", unbound},
    {"small-bar1", Family::registration, "The window for NICs into GPU memory is small",
     "Registration beyond it fails: a T4 of 256 MB above about 200 MB.",
     "BAR1 of 1 GiB or less and below a quarter of the GPU's memory.", "Resizable BAR.", "nv_peer_memory#101",
     small_bar},
    {"memlock", Family::registration, "The process may lock too little memory",
     "Registration fails at 8192 kB; containers start with 8 to 64 MB.",
     "The limit of the process that looks: below 16 GiB, broken below 1 GiB.", "ulimit -l unlimited.", "nccl-tests#206",
     memlock},
    {"no-huge-pages", Family::registration, "No huge pages for host pools",
     "TLB misses and slow registration; no figure found.", "The counts of every NUMA node are 0.",
     "nr_hugepages for each node.", "no figure", no_huge_pages},
    {"reads-refused", Family::registration, "RDMA reads fail and writes do not", "Reads end with an error.",
     "A measured read that failed beside a write that did not.", "Another placement, or only writes.",
     "open-gpu-kernel-modules#1253", reads_refused},
};

}  // namespace

std::span<const Rule> registration_rules() {
  return kRules;
}

}  // namespace fairway::doctor
