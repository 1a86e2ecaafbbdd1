#include <algorithm>

#include <gtest/gtest.h>

#include "golden_text.h"
#include "render/json.h"
#include "render/matrix.h"
#include "render/outline.h"
#include "render/phrases.h"
#include "render/reports.h"
#include "render_support.h"

namespace fairway::render {
namespace {

TEST(Words, RatesKeepTheDigitsThatMatter) {
  EXPECT_EQ(rate(397.4), "397");
  EXPECT_EQ(rate(63.015), "63");
  EXPECT_EQ(rate(31.508), "31.5");
  EXPECT_EQ(rate(0.9846), "0.98");
  EXPECT_EQ(rate(0.0), "0");
  EXPECT_EQ(rate(topology::Fact<double>()), "?");
}

TEST(Words, NamesInARowAreFolded) {
  EXPECT_EQ(fold_names({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_5"}), "mlx5_0-2, mlx5_5");
  EXPECT_EQ(fold_names({"NIC3", "NIC4"}), "NIC3, NIC4");
  EXPECT_EQ(fold_names({"eth", "eth"}), "eth, eth");
  EXPECT_EQ(fold_names({"a01", "a02", "a03"}), "a01, a02, a03");
  EXPECT_EQ(fold_names({}), "");
}

TEST(Words, CutsBetweenCharactersNotInsideThem) {
  EXPECT_EQ(cut("größer", 4), "grö…");
  EXPECT_EQ(cut("kurz", 4), "kurz");
  EXPECT_EQ(columns_of("grö…"), 4U);
  EXPECT_EQ(cut("x", 0), "");
}

TEST(Words, EqualThingsAreCounted) {
  EXPECT_EQ(tally({"A", "B", "A"}), "2 x A + B");
  EXPECT_EQ(tally({}), "");
}

TEST(Matrix, PlainTextHasEveryCellOfTheModel) {
  for (const TestMachine& recorded : recorded_machines()) {
    const topology::Fabric fabric = load_machine(recorded);
    for (const topology::Machine& machine : fabric.machines) {
      const topology::PathMatrix paths = topology::path_matrix(machine);
      const std::string text = matrix_plain(machine);
      std::size_t at = text.find('\n') + 1;
      for (std::size_t row = 0; row < paths.ends.size(); ++row) {
        for (std::size_t column = 0; column < paths.ends.size(); ++column) {
          at = text.find('\t', at) + 1;
          const std::string cell = paths.at(row, column).to_string();
          EXPECT_EQ(text.substr(at, cell.size()), cell) << recorded.name << " " << row << " " << column;
        }
      }
    }
  }
}

TEST(Matrix, FoldingLosesNoClass) {
  for (const TestMachine& recorded : fixture_machines()) {
    const topology::Fabric fabric = load_machine(recorded);
    for (const topology::Machine& machine : fabric.machines) {
      const FoldedMatrix folded = fold(topology::path_matrix(machine), 0);
      for (std::size_t row = 0; row < folded.groups.size(); ++row) {
        for (std::size_t column = 0; column < folded.groups.size(); ++column) {
          for (const std::size_t a : folded.groups[row].members) {
            for (const std::size_t b : folded.groups[column].members) {
              if (a == b) continue;
              EXPECT_EQ(folded.at(row, column), folded.paths.at(a, b)) << recorded.name;
            }
          }
        }
      }
    }
  }
}

TEST(Matrix, ExpectedRatesStandInEveryCellThatHasOne) {
  const topology::Machine machine = awkward_machine();
  const ExpectRate expect = [](topology::NodeRef a, topology::NodeRef b) -> std::optional<Expected> {
    if (a.kind == b.kind) return {};
    Expected expected;
    expected.low_gbs = 41.2;
    expected.high_gbs = 48.4;
    return expected;
  };
  for (const std::size_t columns : {40U, 120U}) {
    const std::string text = matrix_text(machine, expect, {.colour = false, .columns = columns});
    std::size_t seen = 0;
    for (std::size_t at = text.find("41-48"); at != std::string::npos; at = text.find("41-48", at + 1)) ++seen;
    EXPECT_EQ(seen, 4U) << text;  // two GPUs, one NIC with an RDMA device
  }
}

TEST(Matrix, LinesStayWithinTheTerminalWhereTheyCan) {
  for (const TestMachine& recorded : recorded_machines()) {
    const topology::Fabric fabric = load_machine(recorded);
    const std::string text = summary(fabric.machines[0], {.colour = false, .columns = 80});
    std::size_t start = text.find('\n') + 1;
    for (std::size_t end = text.find('\n', start); end != std::string::npos; end = text.find('\n', start)) {
      EXPECT_LE(columns_of(text.substr(start, end - start)), 80U) << recorded.name;
      start = end + 1;
    }
  }
}

// Amazon's NICs say no rate; the picture and the prediction know it by the device id, and so does the summary.
TEST(Text, TheRateOfEfaIsThatOfItsId) {
  topology::Machine machine;
  machine.pci.emplace_back();
  machine.pci[0].vendor_id.set(0x1d0f, topology::Source::hand_written);
  machine.pci[0].device_id.set(0xefa2, topology::Source::hand_written);
  machine.nics.emplace_back();
  machine.nics[0].name = "rdmap1s0";
  machine.nics[0].model.set("Elastic Fabric Adapter (EFA)", topology::Source::hand_written);
  machine.nics[0].functions.emplace_back(std::size_t{0});
  EXPECT_NE(summary(machine, {}).find("200 Gb/s by its PCI id"), std::string::npos) << summary(machine, {});
}

TEST(Text, HasNoColourCodesUnlessAskedFor) {
  const topology::Machine machine = awkward_machine();
  EXPECT_EQ(overview(machine, {}, {}).find('\x1b'), std::string::npos);
  EXPECT_NE(overview(machine, {}, {.colour = true, .columns = 100}).find('\x1b'), std::string::npos);
}

TEST(Tree, NamesEveryDevice) {
  const std::string text = tree_text(awkward_machine(), {});
  for (const char* part : {"GPU0", "GPU1", "0000:12:00.0", "31.5 GB/s, of 63 at its best", "leg<1>(down)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(NicChoices, FoldPortsThatAreNoRailForOneReason) {
  const topology::Machine machine = awkward_machine();
  std::vector<topology::NicChoice> choices(3);
  for (auto& choice : choices) {
    choice.nic = topology::Ref<topology::Nic>(std::size_t{0});
    choice.reason = "PHB: no rail";
  }
  choices[1].reason = "SYS: no rail";
  const std::string text =
      nic_choices_text(machine, {topology::NodeKind::numa_node, 0}, "NUMA node 0", choices, {}, {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST(Hca, SaysWhatAnAttributeMeansAndLimits) {
  const topology::Machine machine = awkward_machine();
  const std::string text = hca_text(machine, machine.rdma[0], {});
  EXPECT_NE(text.find("131072"), std::string::npos);
  EXPECT_NE(text.find("queue pairs that may exist at once"), std::string::npos);
  EXPECT_NE(text.find("for Fairway:"), std::string::npos);
}

TEST(Summary, LinksAreNotAllEqualWhereOneIsNotKnown) {
  topology::Machine machine;
  machine.gpus.resize(4);
  machine.pci.resize(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    machine.pci[i].bus_id.bus = static_cast<std::uint8_t>(i + 1);
    machine.gpus[i].pci = topology::Ref<topology::PciDevice>(i);
    if (i == 2) continue;
    machine.pci[i].link.speed_gts.set(32, topology::Source::sysfs);
    machine.pci[i].link.width.set(16, topology::Source::sysfs);
  }
  EXPECT_NE(summary(machine, {}).find("3 x Gen5 x16 = 63 GB/s, 1 unknown"), std::string::npos) << summary(machine, {});
}

// By the widths of PortCounters in the InfiniBand specification; what counts packets and bytes has 64 bits.
TEST(Hca, ACounterIsAtItsEndByItsOwnWidth) {
  topology::Machine machine;
  machine.rdma.resize(1);
  machine.rdma[0].name = "mlx5_0";
  machine.rdma[0].ports.resize(1);
  const auto at_its_end = [&machine](const char* name, std::uint64_t value) {
    machine.rdma[0].ports[0].counters = {{name, value, topology::Source::sysfs}};
    return hca_text(machine, machine.rdma[0], {}).find("at its end") != std::string::npos;
  };
  for (const auto& [name, most] : {std::pair{"link_downed", 255U},
                                   {"local_link_integrity_errors", 15U},
                                   {"excessive_buffer_overrun_errors", 15U},
                                   {"symbol_error", 65535U},
                                   {"port_xmit_discards", 65535U},
                                   {"port_xmit_wait", 4294967295U}}) {
    EXPECT_TRUE(at_its_end(name, most)) << name;
    EXPECT_FALSE(at_its_end(name, most - 1)) << name;
  }
  for (const std::uint64_t value : {15ULL, 255ULL, 65535ULL, 4294967295ULL})
    EXPECT_FALSE(at_its_end("port_rcv_packets", value)) << value;
}

TEST(PortErrors, StandInATableThatSaysWhatTheyMean) {
  topology::Machine machine;
  machine.rdma.resize(1);
  machine.rdma[0].name = "mlx5_0";
  machine.rdma[0].ports.resize(1);
  EXPECT_EQ(port_errors_text(machine, {}), "") << "nothing went wrong";
  machine.rdma[0].ports[0].hw_counters = {{"rx_write_requests", 5, topology::Source::sysfs},
                                          {"out_of_sequence", 12, topology::Source::sysfs},
                                          {"a_vendors_own_err", 3, topology::Source::sysfs}};
  EXPECT_EQ(port_errors_text(machine, {}),
            "Errors and retransmissions counted by ports\n"
            "  mlx5_0/1  out_of_sequence    12  packets came out of order: some were lost, or took several paths\n"
            "  mlx5_0/1  a_vendors_own_err   3\n");
}

TEST(Json, HoldsTheMatrixAndTheMachine) {
  const Result<std::string> report = json_report(awkward_machine(), {});
  if (!report && report.status().code() == ErrorCode::unsupported) GTEST_SKIP() << report.status().message();
  ASSERT_TRUE(report) << report.status().to_string();
  for (const char* part :
       {"\"format\": \"fairway-topology\"", "\"classes\"", "\"machine\"", "\"edges\"", "\"rails\""}) {
    EXPECT_NE(report.value().find(part), std::string::npos) << part;
  }
}

TEST(Golden, TextsAreAsRecorded) {
  if (recorded_machines().empty()) GTEST_SKIP() << "this build reads no snapshots: nlohmann-json was not found";
  for (const TestMachine& machine : recorded_machines()) {
    const std::string path = golden_folder() + "/" + machine.name + ".txt";
    EXPECT_EQ(golden_text(load_machine(machine)), read_text(path))
        << path << " differs: look at the change, then tests/unit/render/regenerate BUILD-FOLDER";
  }
}

}  // namespace
}  // namespace fairway::render
