#include <algorithm>

#include "doctor/rules/common.h"

// Memory registration: whether a NIC can reach GPU memory, and how much memory may be locked.
namespace fairway::doctor {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Release "5.12.0-30" as 512; 0 if it is not a release.
unsigned kernel_number(const Machine& machine) {
  const auto release = machine.kernel.value_or("");
  const auto dot = release.find('.');
  if (dot == std::string::npos) return 0;
  const auto major = topology::text::to_u32(std::string_view(release).substr(0, dot));
  const auto minor = topology::text::leading_unsigned(std::string_view(release).substr(dot + 1));
  return major && minor ? *major * 100 + static_cast<unsigned>(std::min<std::uint64_t>(*minor, 99)) : 0;
}

bool has_rails_and_nvidia_gpus(const Machine& machine) {
  return !rails(machine).empty() && !nvidia_gpus(machine).empty();
}

// The kernel's loaded modules; if they are unknown the result says why.
const Seen* modules_of(const RuleInput& input, RuleResult& result) {
  const auto* modules = input.facts.find("kernel.modules");
  if (modules == nullptr) result.lacks("loaded kernel modules: " + input.facts.why_not("kernel.modules"));
  return modules;
}

void no_gpu_registration(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (!has_rails_and_nvidia_gpus(machine)) return result.not_applicable();
  const auto* modules = modules_of(input, result);
  if (modules == nullptr) return;
  for (const auto* name : {"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"}) {
    if (input.facts.find(fmt::format("kernel.module.{}", name)) != nullptr) return;
  }
  const auto kind = input.facts.text("gpu.kernel_module");
  const auto dmabuf = input.facts.text("gpu.dmabuf");
  if (kind.empty() && dmabuf.empty())
    return result.lacks("whether the driver's kernel module is the open one: not recorded");
  const auto kernel = kernel_number(machine);
  const bool by_dmabuf = dmabuf == "yes" || (dmabuf.empty() && kind == "open" && (kernel == 0 || kernel >= 512));
  if (by_dmabuf) return;
  auto& finding = result.add();
  finding.title = "No NIC can reach GPU memory: neither nvidia_peermem nor dma-buf is available";
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) finding.devices.push_back(gpu_ref(gpu));
  finding.evidence.push_back({"nvidia_peermem is not loaded", modules->where});
  if (!kind.empty())
    finding.evidence.push_back(evidence_of(input.facts, "gpu.kernel_module", "kernel module: " + kind));
  if (!dmabuf.empty()) finding.evidence.push_back(evidence_of(input.facts, "gpu.dmabuf", "dma-buf: " + dmabuf));
  if (machine.kernel)
    finding.evidence.push_back({"kernel " + *machine.kernel, source_of(machine.kernel.source, "osrelease")});
  cost_of_share(input, gpu_flows(machine), 0.5).write_to(finding);  // nccl-tests#29: twice as fast once enabled
  finding.cause = "gpu registration";
  finding.fix = {"modprobe nvidia_peermem",
                 "# or, on kernel 5.12 or newer, the driver's open kernel modules: they have dma-buf"};
  finding.advice = "Until then programs stage in host memory.";
}

void unbound(const RuleInput& input, RuleResult& result) {
  if (!has_rails_and_nvidia_gpus(input.machine())) return result.not_applicable();
  if (modules_of(input, result) == nullptr) return;
  const auto* peermem = input.facts.find("kernel.module.nvidia_peermem");
  if (peermem == nullptr) return;  // dma-buf, or the rule above
  const auto* holders = input.facts.find("kernel.holders.ib_core");
  if (holders == nullptr) holders = input.facts.find("kernel.holders.ib_uverbs");
  if (holders == nullptr) return result.lacks("users of ib_core: " + input.facts.why_not("kernel.holders.ib_core"));
  if (holders->value.find("nvidia_peermem") != std::string::npos) return;
  if (input.facts.find("kernel.memory_peers.nv_mem") != nullptr) return;
  auto& finding = result.add();
  finding.title = "nvidia_peermem is loaded, but the RDMA stack does not use it";
  finding.level = Level::warning;
  finding.evidence = {{"nvidia_peermem is loaded", peermem->where},
                      {"users of ib_core: " + (holders->value.empty() ? "none" : holders->value), holders->where}};
  cost_of_share(input, gpu_flows(input.machine()), 0.5).write_to(finding);
  finding.cause = "gpu registration";
  finding.fix = {"dkms status; modinfo nvidia_peermem    # built against which RDMA stack?",
                 "# reinstall the driver after the RDMA stack in use, or use dma-buf"};
  finding.advice =
      "Programs stage in host memory without a word; NCCL logs that GPUDirect RDMA is disabled, perftest may work.";
}

void small_bar(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (!has_rails_and_nvidia_gpus(machine)) return result.not_applicable();
  std::vector<NodeRef> small;
  Finding finding;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto& one = machine.gpus[gpu];
    if (!one.bar1_bytes || !one.memory_bytes) {
      result.lacks(topology::gpu_name(machine, one) + ": the size of its BAR1 or memory is not recorded");
      continue;
    }
    // At most 1 GiB, and below a quarter of the GPU's memory.
    if (*one.bar1_bytes > 1ULL << 30 || *one.bar1_bytes * 4 > *one.memory_bytes) continue;
    small.push_back(gpu_ref(gpu));
    if (finding.evidence.size() < 4) {
      finding.evidence.push_back({fmt::format("{}: BAR1 {} MiB of {} MiB of memory", topology::gpu_name(machine, one),
                                              *one.bar1_bytes >> 20, *one.memory_bytes >> 20),
                                  source_of(one.bar1_bytes.source, "BAR1")});
    }
  }
  if (small.empty()) return;
  finding.title = fmt::format("{}: BAR1, the window for NICs, is small", folded_names(machine, small));
  finding.devices = small;
  finding.path = paths_text(machine, flows_through(machine, small.front()));
  finding.fix = {"# BIOS: Above 4G Decoding and Resizable BAR on", "nvidia-smi -q -d MEMORY | grep -A3 BAR1"};
  finding.advice = "Registration of more than BAR1 holds fails (on a T4 with 256 MB above about 200 MB).";
  result.add(std::move(finding));
}

void memlock(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (bulk_nics(machine).empty()) return result.not_applicable();
  const auto* limit = input.facts.find("limit.memlock");
  if (limit == nullptr) return result.lacks("the limit of locked memory: " + input.facts.why_not("limit.memlock"));
  const auto bytes = input.facts.number("limit.memlock");
  if (!bytes || *bytes >= 16 * kGiB) return;  // "unlimited" is no number
  // Whoever has CAP_IPC_LOCK in the first user namespace has no limit (the kernel's can_do_mlock).
  if (input.facts.text("limit.ipc_lock") == "yes") return;
  auto& finding = result.add();
  finding.level = *bytes < 1 * kGiB ? Level::broken : Level::warning;
  const auto shown =
      *bytes < 1024 * 1024 ? fmt::format("{:.0f} KiB", *bytes / 1024) : fmt::format("{:.0f} MiB", *bytes / 1024 / 1024);
  finding.title = fmt::format("Only {} of memory may be locked in this shell: registration of more fails there", shown);
  finding.path = "every RDMA path of a program started so";
  finding.evidence.push_back({fmt::format("Max locked memory {:.0f} bytes", *bytes), limit->where});
  finding.fix = {"ulimit -l unlimited    # before the job; as root, or once the limit below is raised",
                 "echo '* - memlock unlimited' >> /etc/security/limits.conf    # root needs a line of its own: root - "
                 "memlock unlimited",
                 "# systemd: LimitMEMLOCK=infinity; containers: --ulimit memlock=-1; Slurm: "
                 "PropagateResourceLimitsExcept=MEMLOCK"};
  finding.advice =
      limit->where.starts_with("/proc/")
          ? "This is the doctor's own limit: run it inside the job."
          : "It is the limit of the shell that printed it: print it inside the job, which may have another.";
}

void small_shm(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  constexpr double kEnough = kGiB;
  constexpr double kFull = kGiB / 16;
  // A captured /dev/shm matters where jobs run: beside GPUs or rails, or, of this machine, anywhere.
  const auto* size = input.facts.find("host.dev_shm.bytes");
  if (machine.gpus.empty() && rails(machine).empty() && size == nullptr) return result.not_applicable();
  if (size == nullptr) return result.lacks("the size of /dev/shm: " + input.facts.why_not("host.dev_shm.bytes"));
  const auto bytes = input.facts.number("host.dev_shm.bytes").value_or(kEnough);
  const auto free = input.facts.number("host.dev_shm.free_bytes").value_or(bytes);
  const bool full = free < kFull && bytes >= kEnough;
  if (bytes >= kEnough && !full) return;
  auto& finding = result.add();
  finding.title =
      full ? fmt::format("/dev/shm is full: {:.0f} of {:.0f} MiB are free", free / 1024 / 1024, bytes / 1024 / 1024)
           : fmt::format("/dev/shm has {:.0f} MiB", bytes / 1024 / 1024);
  finding.level = machine.gpus.empty() ? Level::note : Level::warning;
  finding.path = "jobs of several processes on this host";
  finding.evidence.push_back(evidence_of(input.facts, "host.dev_shm.bytes", fmt::format("{:.0f} bytes", bytes)));
  if (full) finding.fix = {"ls -lS /dev/shm | head    # whose? what ended jobs left can be removed"};
  if (!full)
    finding.fix = {
        "mount -o remount,size=16G /dev/shm    # as root",
        "# containers: docker run --shm-size=16g, or --ipc=host; Kubernetes: an emptyDir of medium Memory on it"};
  finding.advice = "NCCL and the loaders of PyTorch keep buffers there, and fail or stop where it is full.";
}

void no_huge_pages(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  if (rails(machine).empty()) return result.not_applicable();
  const auto pages = input.facts.below("memory.hugepages");
  if (pages.empty()) return result.lacks("huge pages: " + input.facts.why_not("memory.hugepages"));
  for (const auto& [name, seen] : pages) {
    if (topology::text::to_unsigned(seen->value).value_or(0) > 0) return;
  }
  auto& finding = result.add();
  finding.title = "No huge pages are reserved for host memory pools";
  finding.level = Level::note;
  finding.evidence.push_back({"all counts are 0", pages.front().second->where});
  finding.fix = {
      "echo 4096 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages    # 8 GiB, for each node"};
  finding.advice = "With them pools above 1 GiB register faster, and the NIC's translation cache misses less.";
}

void reads_refused(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool reads = false;
  bool writes_work = false;
  const Measurement* failed = nullptr;
  for (const auto& row : input.measured) {
    if (row.operation == Operation::write && !row.failed) writes_work = true;
    if (row.operation == Operation::read) {
      reads = true;
      if (row.failed) failed = &row;
    }
  }
  if (rails(machine).empty() && !reads) return result.not_applicable();
  if (!reads) return result.lacks("no measured RDMA reads (--measured)");
  if (failed == nullptr || !writes_work) return;
  auto& finding = result.add();
  finding.title = fmt::format("RDMA reads fail, writes work{}", failed->gpu_memory ? " (GPU memory)" : "");
  finding.level = Level::broken;
  finding.confidence = Confidence::measured;
  if (const auto nic = nic_of(machine, *failed)) finding.devices = {nic_ref(*nic)};
  finding.path = row_text(machine, *failed);
  finding.evidence.push_back({failed->problem, fmt::format("{} ({})", failed->where, failed->program)});
  finding.fix = {"# use only writes for this pair, or a NIC behind the GPU's PCIe switch"};
  finding.advice = "Some chipsets forward writes between devices, but no reads.";
}

constexpr Rule kRules[] = {
    {"no-gpu-registration", Family::registration, "NICs cannot reach GPU memory",
     "Programs stage in host memory. With registration they were twice as fast; 33 became 93 GB/s.",
     "nvidia_peermem is not loaded, and there is no dma-buf (closed kernel module, or a kernel before 5.12).",
     "Load nvidia_peermem, or use the open kernel modules.", "nccl-tests#29, nccl#1412", no_gpu_registration},
    {"peermem-unbound", Family::registration, "nvidia_peermem is loaded but not bound to the RDMA stack",
     "Programs stage in host memory without a word.",
     "nvidia_peermem is not among the users of ib_core, and no memory peer is registered.",
     "Build the driver against the RDMA stack in use.", "nccl#1537, nccl#1939", unbound},
    {"small-bar1", Family::registration, "BAR1, the window for NICs into GPU memory, is small",
     "Registration of more fails: on a T4 with 256 MB above about 200 MB.",
     "BAR1 of 1 GiB or less and below a quarter of the GPU's memory.", "Turn on Resizable BAR.", "nv_peer_memory#101",
     small_bar},
    {"memlock", Family::registration, "The process may lock too little memory",
     "Registration fails at 8192 kB; containers start with 8 to 64 MB.",
     "The limit of the doctor's process, unless it has CAP_IPC_LOCK, as root has: a warning below 16 GiB, broken below "
     "1 GiB.",
     "ulimit -l unlimited.", "nccl-tests#206", memlock},
    {"small-shm", Family::registration, "/dev/shm is small",
     "NCCL and PyTorch's loaders fail; Docker's default is 64 MiB.",
     "The size of /dev/shm below 1 GiB: a warning where there are GPUs, else a note.",
     "A larger one: --shm-size, --ipc=host.", "nccl#525, nccl#1518, torchtitan#853", small_shm},
    {"no-huge-pages", Family::registration, "No huge pages for host memory pools",
     "TLB misses and slow registration; no figure found.", "The counts of all NUMA nodes are 0.",
     "nr_hugepages for each node.", "no figure", no_huge_pages},
    {"reads-refused", Family::registration, "RDMA reads fail, writes work", "Reads end with an error.",
     "A measured read failed, and a write did not.", "Another NIC, or only writes.", "open-gpu-kernel-modules#1253",
     reads_refused},
};

}  // namespace

std::span<const Rule> registration_rules() {
  return kRules;
}

}  // namespace fairway::doctor
