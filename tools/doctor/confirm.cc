// fairway doctor --confirm: pairs of runs, in turn, that differ in one setting.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "doctor.h"
#include "doctor/cost.h"
#include "doctor/measurement.h"
#include "runs.h"
#include "topology/assess.h"
#include "topology/file.h"
#include "topology/text.h"

namespace fairway::tool {
namespace {

using doctor::Confidence;
using doctor::Finding;
using doctor::PerftestRun;

constexpr std::size_t kPairs = 4, kMostPairs = 8;  // of an A/B
constexpr double kMatters = 1.15;                  // the rules' threshold

// Rates of A and B, measured in turn so that other load on the machine affects both.
struct Turns {
  std::vector<double> a, b;
  Status failed;  // ok, or why a run failed
};
double middle(std::vector<double> rates) {
  std::ranges::sort(rates);
  return (rates[(rates.size() - 1) / 2] + rates[rates.size() / 2]) / 2;
}
using Rate = std::function<Result<double>()>;
// More pairs where they may differ by what matters, and do not show it: on a busy machine.
bool decides(const Turns& turns) {
  const doctor::Ratio ratio = doctor::ratio_of(turns.a, turns.b);
  return doctor::is_faster(ratio, 1.0) || ratio.high < kMatters;
}
Turns in_turns(const Rate& a, const Rate& b) {
  Turns turns;
  while (turns.b.size() < kPairs || (turns.b.size() < kMostPairs && !decides(turns))) {
    for (const bool second : {false, true}) {
      const auto rate = second ? b() : a();
      if (!rate) {
        turns.failed = rate.status();
        return turns;
      }
      (second ? turns.b : turns.a).push_back(*rate);
    }
  }
  return turns;
}

class Confirming {
 public:
  Confirming(const doctor::Case& found, const OtherHost& with, doctor::Report& report, std::vector<std::string>& told)
      : found_(found), with_(with), report_(report), told_(told), rails_(doctor::rails(found.machine)) {}

  void run() {
    if (rails_.empty()) return told_.push_back("confirm: no RDMA device to run over");
    for (auto& finding : report_.findings) {
      if (finding.rule == "mtu-small" || finding.rule == "mtu-differs") mtu(finding);
      if (finding.rule == "memlock") memlock(finding);
      if (finding.rule == "gid-unroutable") gid(finding);
      if (finding.rule == "bond-leg-down") leg(finding);
      if (finding.rule == "far-nic") far_nic(finding);
    }
    // Without registered memory nothing can run.
    const auto broken = std::ranges::any_of(report_.findings, [](const Finding& one) {
      return one.rule == "memlock" && one.level == doctor::Level::broken;
    });
    if (broken) return;
    for (const auto nic : doctor::rails(found_.machine)) {
      queue_pairs(nic);
      // Software devices all behave alike and have no PCIe link: the first one is enough.
      if (found_.machine.rdma[found_.machine.nics[nic].rdma.index].software.value_or(false)) break;
      ordering(nic);
      inlining(nic);
      nodes(nic);
      gpu_memory(nic);
    }
  }

 private:
  [[nodiscard]] const std::string& name(std::uint32_t nic) const { return found_.machine.nics[nic].name; }

  [[nodiscard]] Rate rate(std::uint32_t nic, const OtherHost& with, const PerftestRun& run) const {
    return [this, nic, with, run]() -> Result<double> {
      const auto row = run_rdma(found_.machine, nic, with, run);
      if (!row) return row.status();
      return row->gbps;
    };
  }

  void prove(Finding& finding, const Turns& turns, std::string what) {
    finding.ratio = doctor::ratio_of(turns.a, turns.b);
    finding.evidence.push_back({std::move(what), fmt::format("A/B, {} pairs in turn", turns.b.size())});
    if (doctor::is_faster(*finding.ratio, 1.0)) {
      finding.confidence = Confidence::confirmed;
    } else {
      finding.advice += (finding.advice.empty() ? "" : " ") + std::string("The A/B runs show no difference.");
    }
  }

  // A and B run over another NIC, whose port has the larger MTU.
  void mtu(Finding& finding) {
    if (finding.devices.empty()) return;
    const auto* slow = doctor::port_of(found_.machine, finding.devices.front().index);
    for (const auto nic : doctor::rails(found_.machine)) {
      const auto* port = doctor::port_of(found_.machine, nic);
      if (slow == nullptr || port == nullptr || !slow->active_mtu || !port->active_mtu ||
          *port->active_mtu <= *slow->active_mtu)
        continue;
      const auto few = *slow->active_mtu;
      const auto many = *port->active_mtu;
      const auto turns = in_turns(rate(nic, {}, {.mtu = few}), rate(nic, {}, {.mtu = many}));
      if (!turns.failed) return told_.push_back(fmt::format("MTU of {}: {}", name(nic), turns.failed.message()));
      return prove(finding, turns, fmt::format("{} with MTU {} and {}", name(nic), few, many));
    }
    told_.push_back("MTU: no other port has a larger one to compare with");
  }

  void memlock(Finding& finding) {
    const auto nics = doctor::rails(found_.machine);
    if (nics.empty()) return;
    const auto small = run_rdma(found_.machine, nics.front(), {}, {});
    const auto large = run_rdma(found_.machine, nics.front(), {}, {.bytes = 128U << 20U});
    if (large) {
      finding.level = doctor::Level::note;
      finding.advice = "This process may lock more because it has CAP_IPC_LOCK; a job without it may not.";
      return;
    }
    // Either the error names the limit, or a smaller run works and the larger fails.
    const bool by_words = doctor::lacks_memory(large.status().message());
    // A missing program or a timeout says nothing about memory.
    const auto code = large.status().code();
    if ((!small && !by_words) || code == ErrorCode::not_found || code == ErrorCode::timed_out)
      return told_.push_back(fmt::format("locked memory: {}", (small ? large : small).status().message()));
    finding.confidence = Confidence::confirmed;
    finding.evidence.push_back({fmt::format("{}a run of 128 MiB ends with: {}", small ? "64 KiB work, " : "",
                                            topology::text::quote(large.status().message(), 200)),
                                "over " + name(nics.front())});
  }

  void gid(Finding& finding) {
    if (finding.devices.empty()) return;
    const auto nic = finding.devices.front().index;
    const auto* port = doctor::port_of(found_.machine, nic);
    if (port == nullptr) return;
    const auto good = doctor::routable_gid(*port);
    const auto chosen = found_.facts.text("env.NCCL_IB_GID_INDEX");
    if (const auto index = topology::text::to_u32(chosen)) {
      const auto bad = run_rdma(found_.machine, nic, with_, {.gid = *index});
      const auto well = good ? run_rdma(found_.machine, nic, with_, {.gid = *good}) : bad;
      if (bad.status().code() == ErrorCode::not_found)
        return told_.push_back(fmt::format("GID of {}: {}", name(nic), bad.status().message()));
      if (!bad && well) {
        finding.confidence = Confidence::confirmed;
        finding.evidence.push_back({fmt::format("GID {} fails, GID {} works: {}", *index, *good,
                                                topology::text::quote(bad.status().message(), 160)),
                                    "A/B over " + name(nic)});
        return;
      }
    } else if (with_) {
      const auto any = run_rdma(found_.machine, nic, with_, {});
      if (!any) {
        finding.confidence = Confidence::confirmed;
        finding.evidence.push_back({topology::text::quote(any.status().message(), 160), "a run to " + with_.address});
        return;
      }
    }
    told_.push_back(
        fmt::format("GID of {}: within one host every GID works; use --with HOST:PORT to decide", name(nic)));
  }

  // How much each leg sends during a run.
  void leg(Finding& finding) {
    if (finding.devices.empty()) return;
    const auto& bond = found_.machine.bonds[finding.devices.front().index];
    const auto sent = [&](const topology::BondLeg& one) -> double {
      const auto& interface = found_.machine.interfaces[one.interface.index].name;
      const auto text = topology::read_file("/sys/class/net/" + interface + "/statistics/tx_bytes", 64);
      return text ? topology::text::to_double(topology::text::trim(*text)).value_or(0) : 0;
    };
    std::vector<double> before;
    for (const auto& one : bond.legs) before.push_back(sent(one));
    for (std::uint32_t i = 0; i < found_.machine.nics.size(); ++i) {
      const auto& nic = found_.machine.nics[i];
      if (!nic.bond || nic.bond.index != finding.devices.front().index || !nic.rdma) continue;
      const auto run = run_rdma(found_.machine, i, with_, {.bytes = 1U << 20U, .qps = 8});
      if (!run) return told_.push_back(fmt::format("legs of {}: {}", nic.name, run.status().message()));
      std::string words;
      bool idle = false;
      double most = 0;
      std::vector<double> moved;
      for (std::size_t k = 0; k < bond.legs.size(); ++k) moved.push_back(sent(bond.legs[k]) - before[k]);
      for (const double bytes : moved) most = std::max(most, bytes);
      for (std::size_t k = 0; k < moved.size(); ++k) {
        words += fmt::format("{}{} sent {:.0f} MB", words.empty() ? "" : ", ",
                             found_.machine.interfaces[bond.legs[k].interface.index].name, moved[k] / 1e6);
        idle = idle || moved[k] < 0.01 * most;
      }
      if (most < 1e6)
        return told_.push_back(
            fmt::format("legs of {}: the traffic did not leave the NIC; use --with HOST:PORT to decide", nic.name));
      finding.evidence.push_back({words, "a run with 8 queue pairs"});
      if (idle) finding.confidence = Confidence::confirmed;
      return;
    }
    told_.push_back("bond legs: no RDMA device uses this bond, so nothing could run over it");
  }

  // 1 and 4 queue pairs; also 2 and 8 if it matters.
  void queue_pairs(std::uint32_t nic) {
    const auto turns = in_turns(rate(nic, with_, {.qps = 1}), rate(nic, with_, {.qps = 4}));
    if (!turns.failed) return told_.push_back(fmt::format("queue pairs of {}: {}", name(nic), turns.failed.message()));
    const auto ratio = doctor::ratio_of(turns.a, turns.b);
    std::string all =
        fmt::format("{}: 1 queue pair {:.1f} Gb/s, 4 {:.1f}", name(nic), middle(turns.a), middle(turns.b));
    const bool matters = doctor::is_faster(ratio, kMatters);
    for (const std::uint32_t pairs : {2U, 8U}) {
      if (!matters) break;
      if (const auto row = run_rdma(found_.machine, nic, with_, {.qps = pairs}))
        all += fmt::format(", {} {:.1f}", pairs, row->gbps);
    }
    auto* finding = find("bond-one-queue-pair", nic);
    if (matters && finding == nullptr) {
      auto& one = report_.findings.emplace_back();
      one.rule = "queue-pairs";
      one.title = fmt::format("{}: one queue pair reaches {:.1f} Gb/s, four reach {:.1f}", name(nic), middle(turns.a),
                              middle(turns.b));
      one.devices = {{topology::NodeKind::nic, nic}};
      // A note: it matters only to jobs with one queue pair for each peer.
      one.level = doctor::Level::note;
      one.path = name(nic);
      one.now_gbps = middle(turns.a);
      one.mended_gbps = middle(turns.b);
      one.loss_gbps = *one.mended_gbps - *one.now_gbps;
      one.fix = {"export NCCL_IB_QPS_PER_CONNECTION=4"};
      finding = &report_.findings.back();
    }
    if (finding == nullptr) return tell(all, ratio);
    if (matters)
      finding->level = std::min(finding->level,
                                finding->rule == "bond-one-queue-pair" ? doctor::Level::warning : doctor::Level::note);
    prove(*finding, turns, all);
  }

  // Writes from and to host memory; GPU memory may need the setting even if this shows no difference.
  void ordering(std::uint32_t nic) {
    bool relaxed = true;
    const auto turns = in_turns(rate(nic, {}, {.strict = true}), [&]() -> Result<double> {
      const auto row = run_rdma(found_.machine, nic, {}, {});
      if (!row) return row.status();
      relaxed = row->relaxed.value_or(false);
      return row->gbps;
    });
    if (!turns.failed)
      return told_.push_back(fmt::format("relaxed ordering of {}: {}", name(nic), turns.failed.message()));
    if (!relaxed)
      return told_.push_back(
          fmt::format("relaxed ordering of {}: perftest reports that the RDMA stack does not support it", name(nic)));
    const auto ratio = doctor::ratio_of(turns.a, turns.b);
    auto what = fmt::format("{}: strict ordering {:.1f} Gb/s, relaxed {:.1f}, host memory", name(nic), middle(turns.a),
                            middle(turns.b));
    auto* finding = find("relaxed-ordering", nic);
    if (finding != nullptr && doctor::is_faster(ratio, 1.0)) return prove(*finding, turns, std::move(what));
    tell(what, ratio);
  }

  // The rail nearest to a GPU.
  [[nodiscard]] std::optional<std::uint32_t> near_nic(std::uint32_t gpu) const {
    const auto choices = topology::nics_for_gpu(found_.machine, topology::Ref<topology::Gpu>(std::size_t{gpu}));
    const auto best = std::ranges::find_if(choices, [&](const topology::NicChoice& choice) {
      return std::ranges::find(rails_, choice.nic.index) != rails_.end();
    });
    return best == choices.end() ? std::nullopt : std::optional(best->nic.index);
  }

  // The memory of one GPU over the NIC that it uses and over the near one.
  void far_nic(Finding& finding) {
    const auto gpu =
        std::ranges::find_if(finding.devices, [&](const auto& one) { return one.kind == topology::NodeKind::gpu; });
    if (gpu == finding.devices.end()) return;
    const auto near = near_nic(gpu->index);
    const auto far = far_from(gpu->index);
    if (!near || !far || *near == *far) return;
    const auto ordinal = found_.machine.gpus[gpu->index].ordinal;
    const auto turns = in_turns(rate(*far, {}, {.gpu = ordinal}), rate(*near, {}, {.gpu = ordinal}));
    if (!turns.failed)
      return told_.push_back(fmt::format("near and far NIC of GPU{}: {}", ordinal, turns.failed.message()));
    prove(finding, turns,
          fmt::format("GPU{} over {} {:.1f} Gb/s, over {} {:.1f}", ordinal, name(*far), middle(turns.a), name(*near),
                      middle(turns.b)));
  }

  // A rail across sockets from this GPU.
  [[nodiscard]] std::optional<std::uint32_t> far_from(std::uint32_t gpu) const {
    for (const auto nic : rails_) {
      const auto path =
          topology::path_class(found_.machine, {topology::NodeKind::gpu, gpu}, {topology::NodeKind::nic, nic});
      if (path && path->kind == topology::PathKind::sys) return nic;
    }
    return {};
  }

  // Host memory of the NIC's NUMA node and of another node.
  void nodes(std::uint32_t nic) {
    const auto numa = topology::numa_of(found_.machine, {topology::NodeKind::nic, nic});
    const topology::NumaNode* near = nullptr;
    const topology::NumaNode* far = nullptr;
    for (const auto& node : found_.machine.numa_nodes) {
      if (!node.cpus || node.cpus->empty()) continue;
      (numa && node.os_index == *numa ? near : far) = &node;
    }
    if (near == nullptr || far == nullptr) return;
    const auto turns =
        in_turns(rate(nic, {}, {.cpus = far->cpus->to_list()}), rate(nic, {}, {.cpus = near->cpus->to_list()}));
    if (!turns.failed) return told_.push_back(fmt::format("NUMA nodes and {}: {}", name(nic), turns.failed.message()));
    tell(fmt::format("{}: memory of NUMA node {} {:.1f} Gb/s, of its own node {} {:.1f}", name(nic), far->os_index,
                     middle(turns.a), near->os_index, middle(turns.b)),
         doctor::ratio_of(turns.a, turns.b));
  }

  // Host memory and memory of the GPU beside the NIC. If the GPU's is far slower it confirms a finding about that path.
  void gpu_memory(std::uint32_t nic) {
    std::optional<std::uint32_t> gpu;
    for (std::uint32_t i = 0; i < found_.machine.gpus.size() && !gpu; ++i)
      if (near_nic(i) == nic) gpu = i;
    if (!gpu) return;
    const auto ordinal = found_.machine.gpus[*gpu].ordinal;
    const auto turns = in_turns(rate(nic, {}, {.gpu = ordinal}), rate(nic, {}, {}));
    if (!turns.failed) return told_.push_back(fmt::format("GPU memory over {}: {}", name(nic), turns.failed.message()));
    const auto ratio = doctor::ratio_of(turns.a, turns.b);
    auto what = fmt::format("{}: memory of GPU{} {:.1f} Gb/s, host memory {:.1f}", name(nic), ordinal, middle(turns.a),
                            middle(turns.b));
    for (const char* rule : {"relaxed-ordering", "acs-redirect", "iommu-translating"}) {
      if (auto* finding = find(rule, nic); finding != nullptr && doctor::is_faster(ratio, kMatters))
        return prove(*finding, turns, std::move(what));
    }
    tell(what, ratio);
  }

  // Whether small inline writes are faster. Programs choose that, so it is no finding.
  void inlining(std::uint32_t nic) {
    constexpr std::uint32_t kBytes = 64;
    const auto speed = [&](std::uint32_t most) -> Rate {
      return [this, nic, most]() -> Result<double> {
        const auto us = time_rdma(found_.machine, nic, {.bytes = kBytes, .inline_max = most});
        if (!us) return us.status();
        return 1 / *us;
      };
    };
    const auto turns = in_turns(speed(0), speed(kBytes));
    if (!turns.failed)
      return told_.push_back(fmt::format("inline writes of {}: {}", name(nic), turns.failed.message()));
    tell(fmt::format("{}: a write of {} bytes takes {:.2f} us, inline {:.2f}", name(nic), kBytes, 1 / middle(turns.a),
                     1 / middle(turns.b)),
         doctor::ratio_of(turns.a, turns.b));
  }

  void tell(const std::string& what, const doctor::Ratio& ratio) {
    told_.push_back(fmt::format("{} (ratio {:.2f}, 95 % confidence interval {:.2f} to {:.2f}): no finding", what,
                                ratio.middle, ratio.low, ratio.high));
  }

  Finding* find(std::string_view rule, std::uint32_t nic) {
    for (auto& finding : report_.findings) {
      if (finding.rule == rule && !finding.devices.empty() &&
          finding.devices.front() == topology::NodeRef{topology::NodeKind::nic, nic})
        return &finding;
    }
    return nullptr;
  }

  const doctor::Case& found_;
  const OtherHost& with_;
  doctor::Report& report_;
  std::vector<std::string>& told_;
  std::vector<std::uint32_t> rails_;
};

}  // namespace

void confirm(const doctor::Case& found, const OtherHost& with, doctor::Report& report, std::vector<std::string>& told) {
  Confirming(found, with, report, told).run();
  doctor::conclude(report);
}

}  // namespace fairway::tool
