#include <gtest/gtest.h>

#include "machines.h"
#include "predict/calibrate.h"
#include "predict/report.h"

namespace fairway::predict {
namespace {

using namespace test;

Result<std::vector<MeasuredRow>> read(std::string_view text, MeasuredDefaults defaults = {}) {
  static const auto machine = server({});
  return read_measured(machine, text, "rows.csv", defaults);
}

TEST(Measured, ACsvOfGpusAndNicsIsRead) {
  const auto rows = read("# a remark\ngpu,nic,path,peak_gbps,average_gbps\n0,mlx5_1,NODE,200,196\n\nGPU3,2,pix,9,8\n");
  ASSERT_TRUE(rows) << rows.status().message();
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ((*rows)[0].line, 3U);
  EXPECT_EQ((*rows)[0].flow.to.index, 1U);
  EXPECT_DOUBLE_EQ((*rows)[0].gbs, 24.5);  // the average, not the peak
  EXPECT_EQ((*rows)[1].path->kind, topology::PathKind::pix);
}

TEST(Measured, EndsConditionsAndModesAreRead) {
  const auto rows = read(
      "from,to,loop,gbs,qps,ordering,mtu\ngpu0,gpu0,nic0,20,4,strict,1024\nnic1,gpu1,,30,1,,\nnuma0,gpu0,,55,,,\n");
  ASSERT_TRUE(rows) << rows.status().message();
  EXPECT_EQ((*rows)[0].flow.loop, 0U);
  EXPECT_EQ((*rows)[0].flow.conditions.qps, 4U);
  EXPECT_EQ((*rows)[0].flow.conditions.ordering, Ordering::strict);
  EXPECT_EQ((*rows)[0].flow.conditions.mtu, 1024U);
  EXPECT_EQ((*rows)[1].flow.from.kind, EndpointKind::nic);
  EXPECT_EQ((*rows)[2].flow.from.kind, EndpointKind::host_memory);
  const auto loops = read("gpu,mode,gbps\n1,loop,180\n1,receive,190\n", {0, RowMode::send, {}});
  ASSERT_TRUE(loops) << loops.status().message();
  EXPECT_EQ((*loops)[0].flow.loop, 0U);
  EXPECT_EQ((*loops)[1].flow.from.kind, EndpointKind::nic);
}

// An interface's MTU is none of RDMA's, and would be taken for packets that do not exist.
TEST(Measured, AnMtuThatRdmaDoesNotHaveIsRefused) {
  const auto rdma = read("from,to,gbs,mtu\ngpu0,nic0,20,9000\n");
  ASSERT_FALSE(rdma);
  EXPECT_NE(rdma.status().message().find("mtu '9000' is none of RDMA's: 256, 512, 1024, 2048, 4096"), std::string::npos)
      << rdma.status().message();
  EXPECT_TRUE(read("from,to,gbs,by,mtu\nnuma0,numa0,2,sockets,9000\n"));
}

TEST(Measured, JsonIsReadAsAListOrBelowRows) {
  const auto list = read(R"([{"gpu": 0, "nic": "mlx5_0", "gbps": 390.5}])");
  if (!list && list.status().code() == ErrorCode::unsupported) GTEST_SKIP() << list.status().message();
  ASSERT_TRUE(list) << list.status().message();
  EXPECT_NEAR((*list)[0].gbs, 48.8, 0.02);
  const auto below = read(R"({"host": "x", "results": [{"from": "gpu1", "to": "nic1", "gbs": 40, "qps": 2}]})");
  ASSERT_TRUE(below) << below.status().message();
  EXPECT_EQ((*below)[0].flow.conditions.qps, 2U);
}

TEST(Measured, EveryFaultNamesTheFileAndTheLine) {
  for (const auto* text :
       {"gpu,gbps\n0,5\n", "gpu,nic,gbps\n0,0,-5\n", "gpu,nic,gbps\n0,0,x\n", "gpu,nic,gbps\n0,0,1e999\n",
        "gpu,nic,gbps\n0,0\n", "gpu,nic,gbps\n99,0,5\n", "gpu,nic,gbps\n0,99,5\n", "gpu,nic\n0,0\n", "gbps\n5\n",
        "gpu,nic,gbps,path\n0,0,5,FAR\n", "gpu,nic,gbps,qps\n0,0,5,0\n", "gpu,nic,gbps,ordering\n0,0,5,lax\n",
        "gpu,nic,gbps,mode\n0,0,5,up\n", "from,to,gbs\ngpu0,moon,5\n", "from,to,loop,gbs\ngpu0,gpu0,gpu1,5\n"}) {
    const auto rows = read(text);
    ASSERT_FALSE(rows) << text;
    EXPECT_TRUE(rows.status().message().starts_with("rows.csv:2: ")) << rows.status().message();
  }
  for (const auto* text :
       {"", "\n\n", "# only\n", "gpu,nic,gbps\n", "{", "[1]", "{\"rows\": 3}", "[[]]", "\xff\xfe,\x00"}) {
    const auto rows = read(text);
    ASSERT_FALSE(rows) << text;
    EXPECT_TRUE(rows.status().message().starts_with("rows.csv: ")) << rows.status().message();
  }
}

TEST(Measured, OutliersAreNamedAndCounted) {
  const Model model(server({}));
  const std::vector<MeasuredRow> rows{{2, send(0, 0), 48.8, {}},
                                      {3, send(1, 1), 12, {}},
                                      {4, send(2, 2), 99, topology::PathClass{topology::PathKind::sys, 0}}};
  const auto comparisons = compare(model, rows);
  ASSERT_TRUE(comparisons);
  EXPECT_EQ((*comparisons)[0].verdict, Verdict::as_expected);
  EXPECT_EQ((*comparisons)[1].verdict, Verdict::slow);
  EXPECT_EQ((*comparisons)[2].verdict, Verdict::fast);
  const auto text = text_of(model, *comparisons);
  EXPECT_NE(text.find("outlier: line 3"), std::string::npos);
  EXPECT_NE(text.find("the file says SYS, the machine PIX"), std::string::npos);
  EXPECT_NE(json_of(model, *comparisons).find("\"verdict\": \"slow\""), std::string::npos);
}

TEST(Measured, JsonStringsAreAlwaysValid) {
  EXPECT_EQ(json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
  EXPECT_EQ(json_string("\xff\xc3(\xe2\x82"),
            "\"?"
            "?(?"
            "?\"");
  EXPECT_EQ(json_string("\xc3\xa9"), "\"\xc3\xa9\"");
}

TEST(Ends, WhatIsNoEndIsRefused) {
  const auto machine = server({});
  for (const auto* text :
       {"", "gpu", "gpu-1", "gpu99999999999", "nic4/leg0", "nic0/leg0", "nic0/x", "/", "numa7", "host", "gpu0/leg0"}) {
    EXPECT_FALSE(parse_endpoint(machine, text)) << text;
  }
  EXPECT_TRUE(parse_endpoint(machine, " GPU3 "));
  EXPECT_TRUE(parse_endpoint(machine, "MLX5_2"));
  EXPECT_TRUE(parse_endpoint(machine, "host1"));
  EXPECT_TRUE(parse_endpoint(seed_h20(), "nic0/leg1"));
}

TEST(Ends, AnArgumentIsReadBackAsTheEndItWasMadeOf) {
  auto machine = seed_h20();
  ASSERT_GE(machine.nics.size(), 3U);
  machine.nics[1].name = "remote";  // means another end
  machine.nics[2].name = "a b:c";   // a shell and a flow would cut it
  std::vector<Endpoint> ends{{EndpointKind::remote, 0, {}}, {EndpointKind::nic, 0, 1}};
  const auto add = [&ends](EndpointKind kind, std::size_t count) {
    for (std::uint32_t i = 0; i < count; ++i) ends.push_back({kind, i, {}});
  };
  add(EndpointKind::gpu, machine.gpus.size());
  add(EndpointKind::nic, machine.nics.size());
  add(EndpointKind::host_memory, machine.numa_nodes.size());
  for (const auto& end : ends) {
    const auto word = argument_of(machine, end);
    const auto read = parse_endpoint(machine, word);
    ASSERT_TRUE(read) << word << ": " << read.status().to_string();
    EXPECT_EQ(*read, end) << word;
  }
  EXPECT_EQ(argument_of(machine, Flow{{EndpointKind::gpu, 4, {}}, {EndpointKind::gpu, 5, {}}, 0, {}}),
            "gpu4:" + machine.nics[0].name + ":gpu5");
  EXPECT_EQ(argument_of(machine, Endpoint{EndpointKind::nic, 2, {}}), "nic2");
}

}  // namespace
}  // namespace fairway::predict
