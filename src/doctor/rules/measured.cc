#include <algorithm>
#include <map>
#include <tuple>

#include "doctor/rules/common.h"

// Measured curves: where their shape tells the cause.
namespace fairway::doctor {
namespace {

using Series = std::tuple<std::string, bool, Operation, std::uint32_t,
                          std::uint32_t>;  // device, GPU, operation, qps, GPU's number

std::map<Series, std::vector<const Measurement*>> series_of(const Look& look) {
  std::map<Series, std::vector<const Measurement*>> out;
  for (const auto& row : look.measured) {
    if (row.failed || row.bytes == 0 || row.operation == Operation::copy || row.operation == Operation::collective)
      continue;
    out[{row.device, row.gpu_memory, row.operation, row.qps, gpu_of(row).value_or(~0U)}].push_back(&row);
  }
  for (auto& [key, rows] : out) {
    std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
  }
  return out;
}

void few_reads(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool reads = false;
  for (const auto& row : look.measured) {
    if (row.operation != Operation::read || row.failed) continue;
    reads = true;
    if (row.max_read == 0 || row.max_read >= 16) {
      if (row.max_read != 0) continue;
      // Without the attribute: reads far below writes of the same size over one NIC.
      const auto write = std::find_if(look.measured.begin(), look.measured.end(), [&](const Measurement& one) {
        return one.operation == Operation::write && !one.failed && one.device == row.device && one.bytes == row.bytes &&
               one.gpu_memory == row.gpu_memory && one.qps == row.qps;
      });
      if (write == look.measured.end() || row.gbps >= 0.5 * write->gbps || row.bytes < 4096) continue;
      Finding finding;
      finding.title =
          fmt::format("Reads over {} reach {:.0f} Gb/s where writes reach {:.0f}", row.device, row.gbps, write->gbps);
      finding.confidence = Confidence::measured;
      finding.now_gbps = row.gbps;
      finding.mended_gbps = write->gbps;
      finding.loss_gbps = write->gbps - row.gbps;
      finding.path = row.device;
      if (const auto nic = nic_of(machine, row)) finding.devices = {nic_ref(*nic)};
      finding.evidence = {evidence_of(machine, row), evidence_of(machine, *write)};
      finding.fix = {fmt::format("ib_read_bw -d {} -o 16 SERVER    # outstanding reads of a queue pair", row.device)};
      finding.advice = "Ask for the device's max_qp_rd_atom when the queue pair is connected.";
      say.add(std::move(finding));
      return;
    }
    Finding finding;
    finding.title = fmt::format("Only {} reads of a queue pair are in flight over {}", row.max_read, row.device);
    finding.confidence = Confidence::measured;
    finding.path = row.device;
    finding.now_gbps = row.gbps;
    if (const auto nic = nic_of(machine, row)) {
      finding.devices = {nic_ref(*nic)};
      const auto rate = topology::nic_one_flow_gbps(machine, machine.nics[*nic]);
      if (rate && *rate * 0.97 > row.gbps) {
        finding.mended_gbps = *rate * 0.97;
        finding.loss_gbps = *finding.mended_gbps - row.gbps;
      }
    }
    finding.evidence = {evidence_of(machine, row), {fmt::format("outstanding reads {}", row.max_read), row.where}};
    finding.fix = {fmt::format("ib_read_bw -d {} -o 16 SERVER", row.device),
                   "# in programs: max_rd_atomic and max_dest_rd_atomic of the device's max_qp_rd_atom"};
    say.add(std::move(finding));
    return;
  }
  if (!reads) say.lacks("no measured RDMA reads: --measured gives them");
}

void small_blocks(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto series = series_of(look);
  if (series.empty()) return say.lacks("no measured sizes: --measured gives them");
  for (const auto& [key, rows] : series) {
    // What programs use is the smaller of two sizes that were measured, both of them large messages' business.
    if (rows.size() != 2) continue;
    const auto& small = *rows.front();
    const auto& large = *rows.back();
    if (small.bytes < 4096 || small.bytes >= 524288 || large.bytes < 524288 || small.gbps >= 0.5 * large.gbps) continue;
    Finding finding;
    finding.title = fmt::format("Blocks of {} KiB reach {:.0f} Gb/s, blocks of {} KiB {:.0f}", small.bytes >> 10,
                                small.gbps, large.bytes >> 10, large.gbps);
    finding.confidence = Confidence::measured;
    // Sizes are the program's choice; the machine is well.
    finding.level = Level::note;
    finding.now_gbps = small.gbps;
    finding.mended_gbps = large.gbps;
    finding.loss_gbps = large.gbps - small.gbps;
    finding.path = small.device;
    if (const auto nic = nic_of(machine, small)) finding.devices = {nic_ref(*nic)};
    finding.evidence = {evidence_of(machine, small), evidence_of(machine, large)};
    finding.advice = "Coalesce blocks to 512 KiB or more, or keep more of them in flight.";
    say.add(std::move(finding));
  }
}

void dip(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  const auto series = series_of(look);
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
      Finding finding;
      finding.title = fmt::format("{}: messages of {} KiB reach {:.0f} Gb/s, smaller ones {:.0f}", row->device,
                                  row->bytes >> 10, row->gbps, best);
      finding.confidence = Confidence::measured;
      finding.now_gbps = row->gbps;
      finding.mended_gbps = best;
      finding.loss_gbps = best - row->gbps;
      finding.path = row->device;
      if (const auto nic = nic_of(machine, *row)) finding.devices = {nic_ref(*nic)};
      finding.evidence = {evidence_of(machine, *peak), evidence_of(machine, *row)};
      finding.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4",
                     fmt::format("ib_write_bw -d {} -a -q 4 SERVER", row->device)};
      finding.advice = "Four queue pairs or more, or messages cut to the size that is fast.";
      say.add(std::move(finding));
      break;
    }
  }
  if (!any) say.lacks("no sizes measured with few queue pairs: ib_write_bw -a gives them");
}

void queue_pairs(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  for (const auto& one : look.measured) {
    if (one.failed || one.qps != 1 || one.device.empty() || one.operation == Operation::copy) continue;
    const auto nic = nic_of(machine, one);
    // Of a bond the rule of bonds speaks.
    if (nic && machine.nics[*nic].bond) continue;
    const Measurement* best = nullptr;
    for (const auto& many : look.measured) {
      if (many.failed || many.qps < 2 || many.device != one.device || many.bytes != one.bytes) continue;
      if (many.operation != one.operation || many.gpu_memory != one.gpu_memory) continue;
      any = true;
      if (best == nullptr || many.gbps > best->gbps) best = &many;
    }
    if (best == nullptr || best->gbps <= 1.15 * one.gbps) continue;
    Finding finding;
    finding.title = fmt::format("{}: one queue pair moves {:.0f} Gb/s, {} move {:.0f}", one.device, one.gbps, best->qps,
                                best->gbps);
    finding.confidence = Confidence::confirmed;
    // What jobs use nobody said.
    finding.level = Level::note;
    finding.now_gbps = one.gbps;
    finding.mended_gbps = best->gbps;
    finding.loss_gbps = best->gbps - one.gbps;
    finding.path = one.device;
    if (nic) finding.devices = {nic_ref(*nic)};
    finding.evidence = {evidence_of(machine, one), evidence_of(machine, *best)};
    finding.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4"};
    say.add(std::move(finding));
    return;
  }
  if (!any) say.lacks("no run with one and one with several queue pairs of the same size");
}

void below_expectation(const Look& look, Saying& say) {
  const auto& machine = look.machine();
  bool any = false;
  for (const auto& row : look.measured) {
    if (row.failed || !row.flow || (row.bytes != 0 && row.bytes < 524288)) continue;
    // The model is of NICs; a software device is as fast as the CPU that plays it.
    const auto nic_of_row = nic_of(machine, row);
    if (nic_of_row && machine.nics[*nic_of_row].rdma &&
        machine.rdma[machine.nics[*nic_of_row].rdma.index].software.value_or(false))
      continue;
    const auto prediction = look.model.predict(*row.flow);
    if (!prediction || !prediction->known) continue;
    any = true;
    const auto& range = prediction->gbs;
    if (row.gbps / 8 >= 0.9 * range.low) continue;
    Finding finding;
    finding.title = fmt::format("{} reaches {:.0f} Gb/s, expected are {:.0f} to {:.0f}",
                                predict::to_string(machine, *row.flow), row.gbps, range.low * 8, range.high * 8);
    finding.confidence = Confidence::measured;
    finding.now_gbps = row.gbps;
    finding.mended_gbps = range.expected * 8;
    finding.loss_gbps = range.expected * 8 - row.gbps;
    finding.path = predict::to_string(machine, *row.flow);
    for (const auto& end : {row.flow->from, row.flow->to}) {
      const auto node = predict::node_of(end);
      if (node.kind == NodeKind::gpu || node.kind == NodeKind::nic) finding.devices.push_back(node);
    }
    if (const auto nic = nic_of(machine, row)) finding.cause = "rail " + machine.nics[*nic].name;
    finding.evidence = {evidence_of(machine, row), {prediction->sentence, "fairway predict"}};
    finding.fix = {"# measure again with nothing else running",
                   fmt::format("fairway predict {}", predict::to_string(machine, *row.flow))};
    finding.advice = "No other rule explains it: compare with a machine like this one (fairway doctor fleet).";
    say.add(std::move(finding));
  }
  if (!any) say.lacks("no measured row whose path the model knows");
}

constexpr Rule kRules[] = {
    {"few-reads", Family::measured, "Few RDMA reads are in flight",
     "2.4 in place of 19.5 GB/s (the block's size changed too).",
     "A measured read with fewer than 16 outstanding, or below half of the write of its size.",
     "max_rd_atomic and max_dest_rd_atomic of the device's maximum.", "InfiniStore, pull request 160", few_reads},
    {"large-message-dip", Family::measured, "Large messages over few queue pairs are slower than smaller ones",
     "284 Gb/s at 1 MiB with one queue pair, 391 with eight.",
     "In one run of sizes, a size more than 15 % below a smaller one's rate, with fewer than four queue pairs.",
     "Four queue pairs or more, or split messages.", "nccl#2409", dip},
    {"queue-pairs", Family::measured, "One queue pair does not fill a port",
     "284 Gb/s with one queue pair, 391 with eight.",
     "Two measured rows that differ in queue pairs alone, by more than 1.15.", "Four queue pairs for each peer.",
     "nccl#2409", queue_pairs},
    {"small-blocks", Family::measured, "Blocks are below the knee of the curve", "64 KiB 97, 1 MiB 353 GB/s on a p5en.",
     "Two measured sizes of one path, the smaller below 512 KiB and below half the rate.",
     "Coalesce blocks to 512 KiB or more.", "Mooncake", small_blocks},
    {"below-expectation", Family::measured, "A path is slower than it should be", "As measured.",
     "A measured row more than 10 % below the range that the predictor gives, which no other rule explains.",
     "Compare with a machine like it.", "docs/prediction.md", below_expectation},
};

}  // namespace

std::span<const Rule> measured_rules() {
  return kRules;
}

}  // namespace fairway::doctor
