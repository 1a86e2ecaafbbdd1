#include "predict/calibrate.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "machines.h"

namespace fairway::predict {
namespace {

using namespace test;

const Fit* find(const Calibration& calibration, ConstantId id) {
  const auto found =
      std::find_if(calibration.fits.begin(), calibration.fits.end(), [id](const Fit& f) { return f.id == id; });
  return found == calibration.fits.end() ? nullptr : &*found;
}

TEST(Calibrate, AShortfallGoesToTheConstantThatIsLeastCertain) {
  const Model model(server({}));
  const std::vector<MeasuredRow> rows{{1, send(0, 1), 22, {}}};  // NODE
  const auto calibration = calibrate(model, rows);
  ASSERT_TRUE(calibration);
  const auto* node = find(*calibration, ConstantId::node);
  ASSERT_NE(node, nullptr);
  EXPECT_TRUE(node->determined);
  EXPECT_NEAR(node->after.expected, 22, 0.1);
  const auto* wire = find(*calibration, ConstantId::wire_fill);
  ASSERT_NE(wire, nullptr);
  EXPECT_FALSE(wire->determined);
  EXPECT_EQ(calibration->constants[ConstantId::wire_fill], row_of(ConstantId::wire_fill).range);
  EXPECT_LT(calibration->error_after, 0.01);
}

TEST(Calibrate, ARowThatItsPortBindsSaysNothingOfTheCrossing) {
  Spec spec;
  spec.nic_gbps = 100;
  const Model model(server(spec));
  const std::vector<MeasuredRow> rows{{7, send(0, 1), 12.19, {}}};
  const auto calibration = calibrate(model, rows);
  ASSERT_TRUE(calibration);
  const auto* node = find(*calibration, ConstantId::node);
  ASSERT_NE(node, nullptr);
  EXPECT_FALSE(node->determined);
  EXPECT_NE(node->why.find("at least 12.2 GB/s"), std::string::npos) << node->why;
}

TEST(Calibrate, WhatIsKeptComesBackTheSame) {
  const Model model(server({}));
  const std::vector<MeasuredRow> rows{{1, send(0, 1), 22, {}}, {2, send(0, 2), 13, {}}};
  const auto calibration = calibrate(model, rows);
  ASSERT_TRUE(calibration);
  const auto text = write_calibration(*calibration, "a server");
  const auto back = read_calibration(text, "x.calibration");
  ASSERT_TRUE(back) << back.status().message();
  for (const auto& row : constant_table()) {
    EXPECT_NEAR((*back)[row.id].expected, calibration->constants[row.id].expected, 1e-4) << row.name;
  }
  EXPECT_TRUE(back->is_calibrated(ConstantId::node));
  EXPECT_EQ(calibration_path("a/b.json"), "a/b.json.calibration");
  EXPECT_EQ(calibration_path("a/folder/"), "a/folder.calibration");
}

TEST(Calibrate, DamagedFilesAreRefusedWithTheirLine) {
  const std::string head = "# fairway calibration 1 of x\nconstant,low,expected,high\n";
  for (const auto& text : {std::string(), std::string("hello"), head + "cross.node,1,2", head + "no.such,1,2,3",
                           head + "cross.node,3,2,1", head + "cross.node,0,1,2", head + "cross.node,a,b,c",
                           std::string("# fairway calibration 2\n"), head + "cross.node,1,nan,3"}) {
    const auto constants = read_calibration(text, "f");
    EXPECT_FALSE(constants) << text;
    EXPECT_TRUE(constants.status().message().starts_with("f:")) << constants.status().message();
  }
}

TEST(Calibrate, NothingToFitIsAnError) {
  const Model model(server({}));
  EXPECT_FALSE(calibrate(model, {}));
  const std::vector<MeasuredRow> same{{1, gpu_to_gpu(0, 0), 5, {}}};
  EXPECT_FALSE(calibrate(model, same));
}

}  // namespace
}  // namespace fairway::predict
