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

TEST(Catalog, RatesOfLinksAreKnownOnlyWhereTheCatalogueHasOne) {
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 4, "NVIDIA H200"), 25);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 4, ""), 25);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 5, "NVIDIA B200"), 50);
  // Third-generation links have two rates: the model decides.
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 3, "NVIDIA A100-SXM4-80GB"), 25);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 3, "NVIDIA RTX A6000"), 14.0625);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 3, "GPU"), std::nullopt);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 0, ""), std::nullopt);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::nvlink, 9, ""), std::nullopt);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::c2c, 0, "NVIDIA GH200 480GB"), 450);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::c2c, 0, "another"), std::nullopt);
  EXPECT_EQ(catalogue_link_gbs(LinkKind::xgmi, 0, "AMD Instinct MI250X (one die)"), 50);
}

TEST(Catalog, LinksWithoutARateTakeTheCatalogues) {
  Machine machine;
  machine.gpus.resize(2);
  DeviceLink link;
  link.a = {NodeKind::gpu, 0};
  link.b = {NodeKind::gpu, 1};
  link.count.set(18, Source::nvml);
  link.generation.set(4, Source::nvml);
  machine.links.push_back(link);
  link.gbs_per_link.set(26.562, Source::nvml);
  machine.links.push_back(link);
  fill_link_rates(machine);
  EXPECT_EQ(machine.links[0].gbs_per_link, (Fact<double>{25, Source::catalogue}));
  EXPECT_EQ(machine.links[1].gbs_per_link, (Fact<double>{26.562, Source::nvml}));
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
