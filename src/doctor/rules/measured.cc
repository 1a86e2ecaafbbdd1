#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "doctor/measurement.h"
#include "doctor/rules/common.h"

// What was measured: curves whose shape shows the cause, and what lies between two hosts.
namespace fairway::doctor {
namespace {

using Series = std::tuple<std::string, bool, Operation, std::uint32_t, std::uint32_t,
                          bool>;  // device, GPU, operation, qps, GPU's number, both ways

std::map<Series, std::vector<const Measurement*>> series_of(const RuleInput& input) {
  std::map<Series, std::vector<const Measurement*>> out;
  for (const auto& row : input.measured) {
    if (row.failed || row.bytes == 0 || row.operation == Operation::copy || row.operation == Operation::collective)
      continue;
    out[{row.device, row.gpu_memory, row.operation, row.qps, gpu_of(row).value_or(~0U), row.both_ways}].push_back(&row);
  }
  for (auto& [key, rows] : out) {
    std::ranges::sort(rows, [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
  }
  return out;
}

void few_reads(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool reads = false;
  for (const auto& row : input.measured) {
    if (row.operation != Operation::read || row.failed) continue;
    reads = true;
    if (row.max_read == 0 || row.max_read >= 16) {
      if (row.max_read != 0) continue;
      // If it is not recorded: reads far below writes of the same size over one NIC.
      const auto write = std::ranges::find_if(input.measured, [&](const Measurement& one) {
        return one.operation == Operation::write && !one.failed && one.device == row.device && one.bytes == row.bytes &&
               one.gpu_memory == row.gpu_memory && one.qps == row.qps && one.both_ways == row.both_ways;
      });
      if (write == input.measured.end() || row.gbps >= 0.5 * write->gbps || row.bytes < 4096) continue;
      auto& finding = result.add();
      finding.title =
          fmt::format("Reads over {} reach {:.0f} Gb/s where writes reach {:.0f}", row.device, row.gbps, write->gbps);
      set_measured(finding, row.gbps, write->gbps);
      finding.path = row.device;
      if (const auto nic = nic_of(machine, row)) finding.devices = {nic_ref(*nic)};
      finding.evidence = {evidence_of(machine, row), evidence_of(machine, *write)};
      finding.fix = {fmt::format("ib_read_bw -d {} -o 16 SERVER    # 16 outstanding reads", row.device)};
      finding.advice = "Set max_rd_atomic to the device's max_qp_rd_atom when the queue pair is connected.";
      return;
    }
    auto& finding = result.add();
    finding.title = fmt::format("{}: only {} outstanding reads for each queue pair", row.device, row.max_read);
    finding.confidence = Confidence::measured;
    finding.path = row.device;
    finding.now_gbps = row.gbps;
    if (const auto nic = nic_of(machine, row)) {
      finding.devices = {nic_ref(*nic)};
      const auto rate = topology::nic_one_flow_gbps(machine, machine.nics[*nic]);
      if (rate && *rate * 0.97 > row.gbps) set_measured(finding, row.gbps, *rate * 0.97);
    }
    finding.evidence = {evidence_of(machine, row), {fmt::format("outstanding reads {}", row.max_read), row.where}};
    finding.fix = {fmt::format("ib_read_bw -d {} -o 16 SERVER", row.device),
                   "# in programs: set max_rd_atomic and max_dest_rd_atomic to the device's max_qp_rd_atom"};
    return;
  }
  if (!reads) result.lacks("no measured RDMA reads (--measured)");
}

void small_blocks(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto series = series_of(input);
  if (series.empty()) return result.lacks("no measured sizes (--measured)");
  for (const auto& [key, rows] : series) {
    // Two sizes were measured on purpose: the one that a program uses, and a large one.
    if (rows.size() != 2) continue;
    const auto& small = *rows.front();
    const auto& large = *rows.back();
    if (small.bytes < 4096 || small.bytes >= 524288 || large.bytes < 524288 || small.gbps >= 0.5 * large.gbps) continue;
    auto& finding = result.add();
    finding.title = fmt::format("Blocks of {} KiB reach {:.0f} Gb/s, blocks of {} KiB reach {:.0f}", small.bytes >> 10,
                                small.gbps, large.bytes >> 10, large.gbps);
    set_measured(finding, small.gbps, large.gbps);
    finding.level = Level::note;  // the program chooses the size; the machine is fine
    finding.path = small.device.empty() ? small.program : small.device;
    if (const auto nic = nic_of(machine, small)) finding.devices = {nic_ref(*nic)};
    finding.evidence = {evidence_of(machine, small), evidence_of(machine, large)};
    finding.advice = "Coalesce blocks to 512 KiB or more, or keep more of them in flight.";
  }
}

void dip(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  const auto series = series_of(input);
  bool any = false;
  for (const auto& [key, rows] : series) {
    if (rows.size() < 3 || std::get<3>(key) >= 4) continue;
    any = true;
    double best = 0;
    const Measurement* peak = nullptr;
    for (const auto* row : rows) {
      if (row->gbps > best) {
        best = row->gbps;
        peak = row;
      }
      if (peak == nullptr || row->bytes <= peak->bytes || row->gbps >= 0.85 * best) continue;
      auto& finding = result.add();
      // MPI's and other programs do not say which device they used.
      const auto& name = row->device.empty() ? row->program : row->device;
      finding.title = fmt::format("{}: messages of {} KiB reach {:.0f} Gb/s, smaller ones up to {:.0f}", name,
                                  row->bytes >> 10, row->gbps, best);
      set_measured(finding, row->gbps, best);
      finding.path = name;
      if (const auto nic = nic_of(machine, *row)) finding.devices = {nic_ref(*nic)};
      finding.evidence = {evidence_of(machine, *peak), evidence_of(machine, *row)};
      finding.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4",
                     fmt::format("ib_write_bw -d {} -a -q 4 SERVER", row->device.empty() ? "DEVICE" : row->device)};
      finding.advice = "Use four queue pairs or more, or cut messages to the faster size.";
      break;
    }
  }
  if (!any) result.lacks("no curve of sizes with fewer than four queue pairs (ib_write_bw -a, --measured)");
}

void queue_pairs(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto& one : input.measured) {
    if (one.failed || one.qps != 1 || one.device.empty() || one.operation == Operation::copy) continue;
    const auto nic = nic_of(machine, one);
    // bond-one-queue-pair covers bonds.
    if (nic && machine.nics[*nic].bond) continue;
    const Measurement* best = nullptr;
    for (const auto& many : input.measured) {
      if (many.failed || many.qps < 2 || many.device != one.device || many.bytes != one.bytes) continue;
      if (many.operation != one.operation || many.gpu_memory != one.gpu_memory || many.both_ways != one.both_ways)
        continue;
      any = true;
      if (best == nullptr || many.gbps > best->gbps) best = &many;
    }
    if (best == nullptr || best->gbps <= 1.15 * one.gbps) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: one queue pair reaches {:.0f} Gb/s, {} reach {:.0f}", one.device, one.gbps,
                                best->qps, best->gbps);
    set_measured(finding, one.gbps, best->gbps);
    finding.confidence = Confidence::confirmed;
    finding.level = Level::note;  // how many queue pairs jobs use is not known
    finding.path = one.device;
    if (nic) finding.devices = {nic_ref(*nic)};
    finding.evidence = {evidence_of(machine, one), evidence_of(machine, *best)};
    finding.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4"};
    return;
  }
  if (!any) result.lacks("no two measured rows of one size with one and with several queue pairs (--measured)");
}

void below_expectation(const RuleInput& input, RuleResult& result) {
  const auto& machine = input.machine();
  bool any = false;
  for (const auto& row : input.measured) {
    if (row.failed || !row.flow || (row.bytes != 0 && row.bytes < 524288)) continue;
    // The model has no figure for software devices: the CPU decides their rate.
    const auto nic_of_row = nic_of(machine, row);
    if (nic_of_row && machine.nics[*nic_of_row].rdma &&
        machine.rdma[machine.nics[*nic_of_row].rdma.index].software.value_or(false))
      continue;
    const auto prediction = input.model.predict(*row.flow);
    if (!prediction || !prediction->known) continue;
    any = true;
    const auto& range = prediction->gbs;
    if (row.gbps / 8 >= 0.9 * range.low) continue;
    auto& finding = result.add();
    finding.title = fmt::format("{}: {:.0f} Gb/s measured, {:.0f} to {:.0f} expected",
                                predict::to_string(machine, *row.flow), row.gbps, range.low * 8, range.high * 8);
    set_measured(finding, row.gbps, range.expected * 8);
    // Whatever else runs slows what CPUs move.
    if (row.flow->conditions.mover != predict::Mover::device) finding.level = Level::note;
    finding.path = predict::to_string(machine, *row.flow);
    for (const auto& end : {row.flow->from, row.flow->to}) {
      const auto node = predict::node_of(end);
      if (node.kind == NodeKind::gpu || node.kind == NodeKind::nic) finding.devices.push_back(node);
    }
    if (const auto nic = nic_of(machine, row)) finding.cause = "rail " + machine.nics[*nic].name;
    finding.evidence = {evidence_of(machine, row), {prediction->sentence, "fairway predict"}};
    finding.fix = {"# measure again with nothing else running"};
    if (row.flow->conditions.mover == predict::Mover::device)  // the command's options say nothing of others
      finding.fix.push_back(fmt::format("fairway predict {}", predict::argument_of(machine, *row.flow)));
    finding.advice = "No other rule explains it: compare with a machine of the same kind (fairway doctor fleet).";
  }
  if (!any) result.lacks("no measured row whose expected rate is known (--measured)");
}

void run_failed(const RuleInput& input, RuleResult& result) {
  if (input.measured.empty()) return result.lacks("no measured row (--measured)");
  std::set<std::string> said;
  for (const auto& row : input.measured) {
    // reads-refused explains a read that fails where writes work.
    const bool lacks = lacks_memory(row.problem);
    if (!row.failed || (row.operation == Operation::read && !lacks) || !said.insert(row.program + row.problem).second)
      continue;
    auto& finding = result.add();
    finding.title = fmt::format("{} failed: {}", row.program, topology::text::quote(row.problem, 90));
    finding.confidence = Confidence::measured;
    finding.path = row.device.empty() ? "what it measured" : row.device;
    if (const auto nic = nic_of(input.machine(), row)) finding.devices = {nic_ref(*nic)};
    finding.evidence = {{row.problem, fmt::format("{} ({})", row.where, row.program)}};
    if (row.problem.find("NOT_PERMITTED") != std::string::npos) {
      finding.fix = {"ls -l /dev/nvidia-caps-imex-channels    # is there a channel for this job?",
                     "systemctl status nvidia-imex    # on every node of the NVLink domain, in the driver's version"};
      finding.advice = "Memory that several hosts share needs an IMEX channel, which the driver did not give.";
    } else if (row.problem.find("SYSTEM_NOT_READY") != std::string::npos) {
      finding.fix = {"systemctl status nvidia-fabricmanager    # is it running, and in the driver's version?",
                     "nvidia-smi -q | grep -A3 Fabric",
                     interrupting("systemctl restart nvidia-fabricmanager", Interrupts::gpus)};
      finding.advice = "Behind NVSwitches CUDA (error 802) waits for the fabric manager.";
    } else if (lacks) {
      finding.fix = {
          "ulimit -l    # in the shell of the run: is it unlimited?",
          "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'    # for GPU memory; or perftest's --use_cuda_dmabuf"};
      finding.advice = "Its memory could not be registered with the NIC.";
    } else {
      finding.advice = "The run ended with this error: its other rows, if any, may be incomplete.";
    }
  }
}

constexpr Rule kRules[] = {
    {"run-failed", Family::measured, "A program that measures ended with an error",
     "Its path is unusable, or was not measured.",
     "Errors in the outputs of perftest, nvbandwidth, ucx_perftest, iperf3, OSU's and Intel's MPI benchmarks and "
     "nccl-tests; there wrong results too.",
     "Depends on the error; no IMEX channel is a common one.", "nvbandwidth#39", run_failed},
    {"few-reads", Family::measured, "Few RDMA reads are in flight",
     "2.4 in place of 19.5 GB/s (the block size was changed too).",
     "A measured read with fewer than 16 outstanding reads, or below half the rate of writes of the same size.",
     "max_rd_atomic and max_dest_rd_atomic at the device's maximum.", "InfiniStore, pull request 160", few_reads},
    {"large-message-dip", Family::measured, "Large messages over few queue pairs are slower than smaller ones",
     "284 Gb/s at 1 MiB with one queue pair, 391 with eight.",
     "With fewer than four queue pairs, a size more than 15 % slower than a smaller one.",
     "Four queue pairs or more, or split messages.", "nccl#2409", dip},
    {"queue-pairs", Family::measured, "One queue pair does not fill a port",
     "284 Gb/s with one queue pair, 391 with eight.",
     "Two measured rows that differ in queue pairs alone, in rate by more than a factor of 1.15.",
     "Four queue pairs for each peer.", "nccl#2409", queue_pairs},
    {"small-blocks", Family::measured, "Blocks are too small for the full rate",
     "On a p5en 64 KiB reach 97 GB/s, 1 MiB 353.",
     "Two measured sizes of one path: the smaller is below 512 KiB and has less than half the rate.",
     "Coalesce blocks to 512 KiB or more.", "Mooncake", small_blocks},
    {"below-expectation", Family::measured, "A path is slower than expected", "As measured.",
     "A measured row more than 10 % below the predicted range that no other rule explains.",
     "Compare with a machine of the same kind.", "docs/prediction.md", below_expectation},
};

}  // namespace

std::span<const Rule> measured_rules() {
  return kRules;
}

// ---- between two hosts, as sockets see it ----

namespace {

void swallowed_segments(const RuleInput& input, RuleResult& result) {
  bool by_sockets = false;
  for (const auto& row : input.measured) {
    by_sockets = by_sockets || row.device == "tcp";
    if (row.segment_bytes == 0) continue;
    constexpr std::uint32_t kHeaders = 60;  // of IPv6 and TCP
    auto& finding = result.add();
    finding.title =
        fmt::format("The way to the other host swallows long segments; those of {} bytes pass", row.segment_bytes);
    finding.level = Level::broken;
    finding.confidence = Confidence::measured;
    finding.cause = "swallowed segments";
    finding.evidence = {
        {fmt::format("segments of {} bytes, after longer ones got no answer", row.segment_bytes), row.where}};
    finding.fix = {"tracepath HOST    # where the MTU gets smaller",
                   "ip link set INTERFACE mtu MTU    # what the whole way carries, on both hosts",
                   "sysctl -w net.ipv4.tcp_mtu_probing=2    # else, for TCP alone"};
    finding.advice = fmt::format(
        "A switch, bridge or tunnel on the way has an MTU smaller than the interfaces', and the ICMP message that "
        "would say so does not arrive: one of {} bytes passes. Fairway goes on in short segments; others hang.",
        row.segment_bytes + kHeaders);
    return;
  }
  if (!by_sockets) result.not_applicable();  // no rate over sockets: --measure --with gives one
}

constexpr Rule kWayRules[] = {
    {"swallowed-segments", Family::measured, "The way between two hosts swallows long TCP segments",
     "Small messages pass, so all seems well; transfers of other programs hang for ever.",
     "A rate that fairway bench measured over tcp, and for which it had to cut segments shorter than the interface's "
     "MTU.",
     "The same MTU on interfaces, switches and tunnels; or let ICMP through; else net.ipv4.tcp_mtu_probing=2.",
     "RFC 2923, section 2.1; Linux's documentation of tcp_mtu_probing", swallowed_segments},
};

}  // namespace

std::span<const Rule> way_rules() {
  return kWayRules;
}

}  // namespace fairway::doctor
