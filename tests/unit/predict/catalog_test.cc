#include "topology/catalog.h"

#include <cmath>

#include <gtest/gtest.h>

namespace fairway::topology {
namespace {

TEST(Catalog, LinksTimesRateIsHalfOfWhatVendorsPrint) {
  int checked = 0;
  for (const auto& row : link_catalogue()) {
    if (row.vendor_total_gbs <= 0) continue;
    EXPECT_DOUBLE_EQ(row.links * row.link_gbs, row.vendor_total_gbs / 2) << row.name << " of " << row.device;
    ++checked;
  }
  EXPECT_GE(checked, 12);
}

TEST(Catalog, LanesTimesTheirRateIsTheLink) {
  for (const auto& row : link_catalogue()) {
    if (row.lanes == 0) continue;
    EXPECT_NEAR(row.lanes * row.lane_gbps / 8, row.link_gbs, row.link_gbs * 0.001) << row.name << " of " << row.device;
  }
}

TEST(Catalog, EveryRowNamesItsSource) {
  for (const auto& row : link_catalogue()) EXPECT_FALSE(row.source.empty()) << row.name;
  for (const auto& row : gpu_catalogue()) EXPECT_FALSE(row.source.empty()) << row.name;
  for (const auto& row : nic_catalogue()) EXPECT_FALSE(row.source.empty()) << row.name;
}

TEST(Catalog, NamesAreMatchedAsWholeWords) {
  const auto name_of = [](std::string_view model) {
    const auto* found = find_gpu_generation(model);
    return found == nullptr ? std::string_view("none") : found->name;
  };
  EXPECT_EQ(name_of("NVIDIA H200"), "H200");
  EXPECT_EQ(name_of("NVIDIA H20"), "H20");
  EXPECT_EQ(name_of("NVIDIA A100-SXM4-80GB"), "A100");
  EXPECT_EQ(name_of("NVIDIA A10"), "A10");
  EXPECT_EQ(name_of("nvidia gb200"), "GB200");
  EXPECT_EQ(name_of("AMD Instinct MI300X"), "MI300X");
  EXPECT_EQ(name_of("something else"), "none");
  EXPECT_EQ(find_nic_generation("MT43244 BlueField-3 integrated ConnectX-7 network controller")->name, "BlueField-3");
  EXPECT_EQ(find_nic_generation("MT2892 Family [ConnectX-6 Dx]")->name, "ConnectX-6 Dx");
  EXPECT_EQ(find_nic_generation("MT28908 Family [ConnectX-6]")->name, "ConnectX-6");
  EXPECT_EQ(find_nic_generation("MT4129")->name, "ConnectX-7");
  EXPECT_EQ(find_nic_generation(""), nullptr);
}

TEST(Catalog, ItPrintsAsTextAndJson) {
  EXPECT_NE(catalogue_text().find("NVLink 4"), std::string::npos);
  const auto json = catalogue_json();
  EXPECT_EQ(json.front(), '{');
  for (const auto& row : link_catalogue()) EXPECT_EQ(row.trap.find('"'), std::string_view::npos);
}

}  // namespace
}  // namespace fairway::topology
