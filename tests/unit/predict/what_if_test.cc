#include "predict/what_if.h"

#include <gtest/gtest.h>

#include "machines.h"

namespace fairway::predict {
namespace {

using namespace test;

double expected(const WhatIf& what, Flow flow) {
  flow.conditions = what.conditions;
  const auto prediction = Model(what.machine, {}, what.assumptions).predict(flow);
  EXPECT_TRUE(prediction) << prediction.status().message();
  return prediction ? prediction->gbs.expected : 0;
}

WhatIf with(std::vector<std::string> words, topology::Machine machine) {
  WhatIf what{std::move(machine), {}, {}};
  for (const auto& word : words) {
    const auto status = imagine(word, what);
    EXPECT_TRUE(status) << status.message();
  }
  return what;
}

TEST(WhatIf, EachChangeMovesWhatItShould) {
  const auto as_is = expected(with({}, server({})), send(0, 0));
  EXPECT_NEAR(expected(with({"gpu0.link=3x16"}, server({})), send(0, 0)), 15.75 * 0.87, 0.02);
  EXPECT_NEAR(expected(with({"gpus.link=gen5x4"}, server({})), send(0, 0)), 15.75 * 0.87, 0.02);
  EXPECT_NEAR(expected(with({"nic0.rate=200"}, server({})), send(0, 0)), as_is / 2, 0.01);
  EXPECT_LT(expected(with({"mtu=1024"}, server({})), send(0, 0)), as_is);
  EXPECT_NEAR(expected(with({"cpu=emr", "ordering=relaxed"}, server({})), send(0, 2)), 40, 0.1);
  EXPECT_NEAR(expected(with({"vm=yes", "ordering=strict"}, server({})), receive(0, 0)), 10.5, 0.01);
  EXPECT_NEAR(expected(with({"by=kernel"}, server({})), gpu_to_gpu(0, 1)), 450 * 0.82, 0.1);
}

TEST(WhatIf, QueuePairsAndLegsOfABond) {
  Spec bond;
  bond.nic_gbps = 200;
  bond.legs = 2;
  const auto one = expected(with({}, server(bond)), send(0, 0));
  EXPECT_NEAR(expected(with({"qps=2", "round-robin=yes"}, server(bond)), send(0, 0)), 2 * one, 0.01);
  EXPECT_NEAR(expected(with({"qps=2"}, server(bond)), send(0, 0)), 1.5 * one, 0.01);
  EXPECT_NEAR(expected(with({"qps=8", "legs=1"}, server(bond)), send(0, 0)), one, 0.01);
}

TEST(WhatIf, AMovedNicIsBesideItsGpu) {
  const auto before = expected(with({}, server({})), send(0, 2));
  const auto after = expected(with({"nic2.at=gpu0"}, server({})), send(0, 2));
  EXPECT_LT(before, 25);
  EXPECT_GT(after, 45);
  const auto seed = expected(with({"nic0.at=gpu5"}, seed_h20()), send(5, 0));
  EXPECT_NEAR(seed * 8, 195, 1);
}

TEST(WhatIf, WhatIsNotUnderstoodIsRefusedWithWhatMayBeSaid) {
  WhatIf what{server({}), {}, {}};
  for (const auto* word : {"",
                           "qps",
                           "qps=",
                           "qps=0",
                           "qps=x",
                           "qps=99999999",
                           "legs=0",
                           "mtu=1",
                           "mtu=1500",
                           "mtu=9000",
                           "ordering=lax",
                           "vm=perhaps",
                           "cpu=z80",
                           "gpu0.link=9x16",
                           "gpu0.link=4x3",
                           "gpu0.link=4",
                           "gpu99.link=4x16",
                           "nic0.rate=-1",
                           "nic0.rate=1e999",
                           "gpu0.rate=4",
                           "nic0.at=nic1",
                           "nic0.at=gpu99",
                           "nics.at=gpu0",
                           "numa0.link=4x16",
                           "x.y=z",
                           "=",
                           ".=."}) {
    const auto status = imagine(word, what);
    EXPECT_FALSE(status) << word;
    EXPECT_FALSE(status.message().empty());
  }
  EXPECT_TRUE(what.assumptions.link_gbs.empty());
}

}  // namespace
}  // namespace fairway::predict
