#include <regex>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "doctor/report.h"
#include "predict/report.h"
#include "reading_support.h"
#include "render/json.h"
#include "render/matrix.h"
#include "render/page.h"
#include "render/reports.h"
#include "render/svg.h"
#include "topology/assess.h"
#include "topology/load.h"

// One GPU of eight, whose number no text tells: it goes by its bus id wherever it is shown.
namespace fairway::doctor::testing {
namespace {

constexpr const char* kOneOfEight =
    "==============NVSMI LOG==============\n\nDriver Version                            : 550.90.07\n"
    "Attached GPUs                             : 8\nGPU 00000000:81:00.0\n"
    "    Product Name                          : NVIDIA H100 80GB HBM3\n"
    "    FB Memory Usage\n        Total                             : 81559 MiB\n"
    "    BAR1 Memory Usage\n        Total                             : 256 MiB\n"
    "    GPU Link Info\n        PCIe Generation\n            Max                           : 5\n"
    "            Current                       : 5\n        Link Width\n"
    "            Max                           : 16x\n            Current                       : 8x\n";
constexpr const char* kNic =
    "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n";

constexpr const char* kTree =
    "80:01.0 PCI bridge: Intel Corporation Device 352a\n\tBus: primary=80, secondary=81, subordinate=81, "
    "sec-latency=0\n\n81:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]\n";

topology::Machine machine_of(const Folder& folder) {
  folder.write("q.txt", kOneOfEight);
  folder.write("ibstat.txt", kNic);
  folder.write("lspci.txt", kTree);
  auto found = read_case(folder.path());
  EXPECT_TRUE(found) << found.status().message();
  return found ? std::move(found->machine) : topology::Machine{};
}

TEST(DoctorUnnumbered, NoOutputShowsANumberThatNoSourceTold) {
  const Folder folder;
  const auto machine = machine_of(folder);
  ASSERT_EQ(machine.gpus.size(), 1U);
  const predict::Model model(machine);
  const auto report = report_of(folder.path());
  const auto matrix = predict::rate_matrix(model, predict::RowMode::send, {});
  const render::ExpectRate expect = [](auto, auto) { return std::optional<render::Expected>(); };
  const auto exported = topology::export_nccl_xml(machine);
  ASSERT_TRUE(exported) << exported.status().message();
  std::string lost;
  for (const auto& one : exported->lost) lost += one.subject + one.text + "\n";
  auto less = machine;
  less.gpus.clear();
  const std::vector<std::pair<const char*, std::string>> outputs{
      {"doctor", text_of(report, {}, true)},
      {"doctor --json", json_of(machine, report).value()},
      {"doctor --html", html_of(machine, report)},
      {"doctor --prom", prom_of(report)},
      {"topo", render::overview(machine, expect, {})},
      {"topo --matrix", render::matrix_plain(machine)},
      {"topo --json", render::json_report(machine, expect).value()},
      {"topo --html", render::page(machine, expect)},
      {"topo lint", render::findings_text(topology::lint(machine), {})},
      {"topo diff", render::differences_text("a", "b", topology::diff(machine, less), {}) +
                        render::differences_text("a", "b", topology::diff(less, machine), {})},
      {"topo export", exported->text + lost},
      {"topo snapshot", topology::write_snapshot(machine).value()},
      {"predict", predict::text_of(model, matrix)},
      {"predict --json", predict::json_of(model, matrix)},
      {"an end", predict::argument_of(machine, predict::Endpoint{predict::EndpointKind::gpu, 0, {}})},
  };
  const std::regex number("6000[0-9]");
  for (const auto& [what, text] : outputs) {
    std::smatch found;
    EXPECT_FALSE(std::regex_search(text, found, number))
        << what << ": " << found.prefix().str().substr(std::max<std::size_t>(found.prefix().length(), 60) - 60)
        << found.str();
    EXPECT_FALSE(text.empty()) << what;
  }
}

TEST(DoctorUnnumbered, ARecordingKeepsThatTheNumberIsUnknown) {
  const Folder folder;
  const auto machine = machine_of(folder);
  const auto text = topology::write_snapshot(machine);
  ASSERT_TRUE(text);
  const auto again = topology::read_snapshot(*text, "again");
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(topology::node_name(*again, {topology::NodeKind::gpu, 0}), "GPU 0000:81:00.0");
}

TEST(DoctorUnnumbered, AFlowNamesItByItsBusId) {
  const Folder folder;
  const auto machine = machine_of(folder);
  const auto name = predict::argument_of(machine, predict::Endpoint{predict::EndpointKind::gpu, 0, {}});
  EXPECT_EQ(name, "gpu0000-81-00.0");
  const auto end = predict::parse_endpoint(machine, name);
  ASSERT_TRUE(end) << end.status().message();
  EXPECT_EQ(end->kind, predict::EndpointKind::gpu);
  const auto none = predict::parse_endpoint(machine, "gpu0");
  ASSERT_FALSE(none);
  EXPECT_NE(none.status().message().find("GPUs 0000-81-00.0"), std::string::npos) << none.status().message();
}

}  // namespace
}  // namespace fairway::doctor::testing
