// The model against measurements of other people's machines: those that fed its constants, and those that it never saw.
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "machines.h"
#include "topology/file.h"
#include "topology/text.h"

namespace fairway::predict {
namespace {

using namespace test;
namespace text = topology::text;
using topology::NodeKind;
using topology::NodeRef;
using topology::PathClass;
using topology::PathKind;
using Row = std::map<std::string, std::string>;

std::vector<Row> public_rows() {
  const auto file = topology::read_file(FAIRWAY_PREDICT_DATA "/public_rows.csv", 1U << 20U);
  EXPECT_TRUE(file) << file.status().message();
  std::vector<Row> rows;
  std::vector<std::string> header;
  if (!file) return rows;
  for (const auto line : text::lines(*file)) {
    if (line.empty() || line.front() == '#') continue;
    const auto cells = text::split(line, ',');
    if (header.empty()) {
      header.assign(cells.begin(), cells.end());
      continue;
    }
    EXPECT_EQ(cells.size(), header.size()) << line;
    Row row;
    for (std::size_t i = 0; i < cells.size() && i < header.size(); ++i) row[header[i]] = std::string(cells[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Two GPUs or a GPU and a NIC at the row's distance, and nothing else.
Prediction predict_row(Row row) {
  Spec spec;
  spec.gpu = row["gpu"];
  spec.vendor = "";
  spec.nic_gbps = text::to_double(row["nic_gbps"]).value_or(0);
  spec.infiniband = row["layer"] == "InfiniBand";
  const auto path = PathClass::parse(row["path"]).value_or(PathClass{});
  const bool gpus = path.kind == PathKind::nvlink || path.kind == PathKind::xgmi || row["kind"] == "p2p";
  auto machine = pair_of(path.kind, spec);
  if (gpus) {
    machine.gpus.push_back(machine.gpus[0]);
    machine.gpus[1].ordinal = 1;
    machine.matrix.ends = {{NodeKind::gpu, 0}, {NodeKind::gpu, 1}};
    machine.matrix.cells = {{PathKind::self, 0}, path, path, {PathKind::self, 0}};
  }
  Assumptions assumptions;
  assumptions.cpu = cpu_kind_from(row["cpu"]);
  assumptions.virtual_machine = row["vm"] == "yes";
  const double link = topology::pcie_gbs(text::to_double(row["gts"]).value_or(0), 16);
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) assumptions.link_gbs[{NodeKind::gpu, i}] = link;
  // A NIC may be of a newer generation than the GPU: its link is that of its port.
  const double nic_link = topology::pcie_gbs(spec.nic_gbps > 200 ? 32 : 16, 16);
  assumptions.link_gbs[{NodeKind::nic, 0}] = nic_link;
  Conditions how;
  how.by_kernel = row["by"] == "kernel";
  how.ordering = row["ordering"] == "relaxed"  ? Ordering::relaxed
                 : row["ordering"] == "strict" ? Ordering::strict
                                               : Ordering::unknown;
  Flow flow = send(0, 0, how);
  if (row["kind"] == "receive") flow = receive(0, 0, how);
  if (gpus) flow = gpu_to_gpu(0, 1, how);
  if (row["kind"] == "host_copy") flow = from_host(0, 0);
  if (row["kind"] == "host_send") flow.from = {EndpointKind::host_memory, 0, {}};
  const auto prediction = Model(machine, {}, assumptions).predict(flow);
  EXPECT_TRUE(prediction) << row["name"] << ": " << prediction.status().message();
  return prediction ? *prediction : Prediction{};
}

TEST(PublicRows, MachinesThatTheModelNeverSawAreNear) {
  std::map<std::string, std::pair<double, int>> errors;
  std::string report;
  int outside = 0;
  for (auto row : public_rows()) {
    const auto prediction = predict_row(row);
    const double measured = text::to_double(row["measured_gbs"]).value_or(0);
    ASSERT_GT(measured, 0) << row["name"];
    ASSERT_TRUE(prediction.known) << row["name"];
    const double error = std::abs(prediction.gbs.expected - measured) / measured;
    const bool in_range = measured >= prediction.gbs.low * 0.98 && measured <= prediction.gbs.high * 1.02;
    outside += in_range ? 0 : 1;
    auto& [sum, count] = errors[row["fed"]];
    sum += error;
    ++count;
    report += fmt::format("{:<44} {:>4} {:>7.1f} measured {:>7.1f} ({:.1f}-{:.1f}) error {:>5.1f} %{}\n", row["name"],
                          row["fed"], prediction.gbs.expected, measured, prediction.gbs.low, prediction.gbs.high,
                          100 * error, in_range ? "" : "  outside");
  }
  for (const auto& [fed, total] : errors) {
    report +=
        fmt::format("mean error, fed {}: {:.1f} % of {} rows\n", fed, 100 * total.first / total.second, total.second);
    EXPECT_LE(total.first / total.second, 0.10) << report;
  }
  EXPECT_LE(outside, 4) << report;
  if (std::getenv("FAIRWAY_PREDICT_REPORT") != nullptr) fmt::print("{}", report);
}

}  // namespace
}  // namespace fairway::predict
