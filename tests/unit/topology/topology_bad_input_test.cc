#include <random>

#include <fmt/format.h>

#include "machines/build_machines.h"
#include "topology/assess.h"
#include "topology/load.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

using Reader = Result<Machine> (*)(std::string_view, const std::string&);
Result<Machine> read_matrix(std::string_view text, const std::string& name) {
  return read_topo_matrix(text, name);
}
constexpr Reader kReaders[] = {&read_snapshot, &read_hwloc_xml, &read_nccl_xml, &read_matrix};

// What every caller would do next must not fail on a machine that a reader let pass.
void use(const Result<Machine>& machine) {
  if (!machine) {
    EXPECT_FALSE(machine.status().message().empty());
    return;
  }
  EXPECT_TRUE(validate(*machine));
  (void)path_matrix(*machine);
  (void)edges(*machine);
  (void)lint(*machine);
}

constexpr const char* kNccl = R"(<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90"><nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="90"/></pci>
    </pci>
  </cpu>
</system>
)";

std::string message_of(const std::string& from, const std::string& to) {
  std::string text = kNccl;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  const auto machine = read_nccl_xml(text, "t.xml");
  return machine ? "loaded" : machine.status().message();
}

class NcclXml : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef FAIRWAY_HAVE_PUGIXML
    GTEST_SKIP() << "this build has no pugixml";
#endif
  }
};

TEST_F(NcclXml, ErrorsNameFileLineAndReason) {
  EXPECT_NE(message_of("0000:01:00.0", "zzz").find("t.xml:3"), std::string::npos);
  EXPECT_NE(message_of("0000ffff", "wide").find("t.xml:2"), std::string::npos);
  EXPECT_NE(message_of("dev=\"1\"", "dev=\"0\"").find("GPU 0 appears twice"), std::string::npos);
  EXPECT_NE(message_of("count=\"4\"", "count=\"-4\"").find("t.xml:5"), std::string::npos);
  EXPECT_NE(message_of("</system>", "").find("not XML"), std::string::npos);
}

TEST_F(NcclXml, KeepsAnAbsurdSpeedOutAndSaysSo) {
  std::string text = kNccl;
  text.replace(text.find("32.0 GT/s"), 9, "1e99 GT/s");
  const auto machine = read_nccl_xml(text, "t.xml");
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_FALSE(machine->pci[0].link.speed_gts);
  EXPECT_EQ(machine->notes[0].kind, NoteKind::unreadable);
}

TEST_F(NcclXml, OfAMillionDevicesIsRefusedQuickly) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (unsigned i = 0; i < 300'000; ++i)
    text += fmt::format("<pci busid=\"{:x}:{:02x}:{:02x}.0\"/>", i / 8192, i / 32 % 256, i % 32);
  text += "</cpu></system>";
  const auto machine = read_nccl_xml(text, "t.xml");
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.status().message().find("no machine has so many"), std::string::npos) << machine.status().message();
}

TEST_F(NcclXml, NestedWithoutEndIsRefused) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (unsigned i = 0; i < 200; ++i) text += fmt::format("<pci busid=\"0000:{:02x}:00.0\">", i);
  for (unsigned i = 0; i < 200; ++i) text += "</pci>";
  text += "</cpu></system>";
  const auto machine = read_nccl_xml(text, "t.xml");
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.status().message().find("deep"), std::string::npos);
}

TEST(BadInput, DeepNestingDoesNotExhaustTheStack) {
  std::string xml;
  std::string json;
  for (int i = 0; i < 200'000; ++i) {
    xml += "<object>";
    json += "[";
  }
  for (const auto reader : kReaders) {
    use(reader("<topology version=\"2.0\">" + xml, "deep"));
    use(reader(json, "deep"));
    use(reader(R"({"format": "fairway machine", "version": 1, "machine": )" + json, "deep"));
  }
}

TEST(BadInput, EmptyAndForeignFilesAreNamed) {
  const TempFolder folder;
  folder.write("empty", "");
  folder.write("foreign", "hello\nworld\n");
  folder.write("page.xml", "<html><body/></html>");
  for (const char* name : {"empty", "foreign", "page.xml", "absent"}) {
    const auto machine = load(folder.path() + "/" + name);
    ASSERT_FALSE(machine) << name;
    EXPECT_NE(machine.status().message().find(name), std::string::npos);
  }
  EXPECT_NE(load(folder.path() + "/empty").status().message().find("the file is empty"), std::string::npos);
  const TempFolder nothing;
  EXPECT_FALSE(load(nothing.path()));
}

TEST(Matrix, CutOffCapturesKeepWhatTheyShow) {
  const std::string whole =
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV18\tPIX\t0-3\t0\n"
      "GPU1\tNV18\t X \tSYS\t4-7\t1\n"
      "NIC0\tPIX\tSYS\t X \n";
  for (std::size_t length = 45; length <= whole.size(); ++length) {
    const auto machine = read_topo_matrix(whole.substr(0, length), "cut");
    if (!machine) continue;
    const auto matrix = path_matrix(*machine);
    for (std::size_t r = 0; r < matrix.ends.size(); ++r) {
      for (std::size_t c = 0; c < matrix.ends.size(); ++c) {
        const auto full = read_topo_matrix(whole, "whole");
        const auto known = path_matrix(*full);
        const auto text = matrix.at(r, c).to_string();
        EXPECT_TRUE(text == "?" || text == known.at(r, c).to_string()) << length << ": " << text;
      }
    }
  }
}

TEST(Matrix, ReadsATerminalsEscapesAndMissingAffinity) {
  const auto machine =
      read_topo_matrix("\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n", "t");
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(machine->gpus.size(), 2U);
  EXPECT_EQ(machine->gpus[0].cpus->to_list(), "0-7");
  EXPECT_FALSE(machine->gpus[0].numa_node);
}

// As a GB200 board prints it: the memory of GPUs is NUMA nodes too, and stands in the list behind the CPU's.
TEST(Matrix, GpusOfGraceAreBesideTheirCpu) {
  const std::string heading = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  const auto machine = read_topo_matrix(
      heading + "GPU0\t X \tNV18\t0-71\t0,3-9,11-17\t\t2\n" + "GPU1\tNV18\t X \t72-143\t1,19-25,27-33\t\t18\n", "t");
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_TRUE(machine->gpus[1].numa_node);
  EXPECT_EQ(*machine->gpus[1].numa_node, 1U);
  ASSERT_EQ(machine->numa_nodes.size(), 2U);
  EXPECT_EQ(machine->numa_nodes[1].cpus->to_list(), "72-143");
  ASSERT_TRUE(c2c_gbs(*machine, 0));
  EXPECT_DOUBLE_EQ(*c2c_gbs(*machine, 0), 450);
  EXPECT_FALSE(machine->links.back().generation) << "one GPU beside a CPU: GH200 or Blackwell";
  // Two GPUs beside one CPU are Blackwell's, with its NVLink.
  const auto tray =
      read_topo_matrix(heading + "GPU0\t X \tNV18\t0-71\t0,2-17\t\t2\n" + "GPU1\tNV18\t X \t0-71\t0,2-17\t\t10\n", "t");
  ASSERT_TRUE(tray) << tray.status().to_string();
  ASSERT_TRUE(tray->links.back().gbs_per_link);
  EXPECT_DOUBLE_EQ(*tray->links.back().gbs_per_link, 50);
  // A list without such an id says that the place is unknown.
  const auto anywhere = read_topo_matrix(heading + "GPU0\t X \tNV18\t0-143\t0-1\t\tN/A\n", "t");
  ASSERT_TRUE(anywhere) << anywhere.status().to_string();
  EXPECT_FALSE(anywhere->gpus[0].numa_node);
}

TEST(Matrix, ShiftedColumnsAreAnError) {
  const auto machine = read_topo_matrix("GPU0 GPU1\nGPU0 PHB X\nGPU1 X PHB\n", "t.txt");
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.status().message().find("t.txt:2"), std::string::npos);
}

// Flips, cuts, doubles and drops bytes of each seed, always in the same way. What is left of it loads or fails with
// words.
void mutate(const std::string& seed, unsigned rounds) {
  std::mt19937 random(static_cast<unsigned>(seed.size()) + 1);
  const auto below = [&random](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (unsigned round = 0; round < rounds; ++round) {
    auto text = seed;
    const auto changes = 1 + below(4);
    for (std::size_t i = 0; i < changes && !text.empty(); ++i) {
      const auto at = below(text.size());
      switch (below(5)) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.resize(at); break;
        case 2: text.erase(at, 1 + below(20)); break;
        case 3: text.insert(at, text.substr(below(text.size()), 1 + below(60))); break;
        case 4: text[at] = "0123456789-<>\"{}[]:,. \tX"[below(24)]; break;
      }
    }
    for (const auto reader : kReaders) use(reader(text, "mutated"));
  }
}

TEST(BadInput, MutatedFilesNeverCrash) {
  std::vector<std::string> seeds{kNccl};
  for (const auto& path : files_below(recorded_machines())) {
    if (path.ends_with("pair.json") || path.ends_with("vm.json")) seeds.push_back(read_text(path));
  }
  if (!fixtures().empty()) {
    for (const auto& path : files_below(fixtures())) {
      auto text = read_text(path);
      if (path.ends_with(".xml") || path.find("/matrix/") != std::string::npos) seeds.push_back(text.substr(0, 6000));
    }
  }
  for (const auto& seed : seeds) mutate(seed, 250);
}

TEST(BadInput, MutatedCommandOutputsNeverCrash) {
  REQUIRE_FIXTURES();
  std::mt19937 random(7);
  const auto names = files_below(fixtures() + "/seed-h20");
  for (unsigned round = 0; round < 40; ++round) {
    const TempFolder folder;
    for (const auto& path : names) {
      auto text = read_text(path);
      for (unsigned i = 0; i < 8 && !text.empty(); ++i) text[random() % text.size()] = static_cast<char>(random());
      if (random() % 4 == 0) text.resize(random() % (text.size() + 1));
      folder.write(path.substr(path.rfind('/') + 1), text);
    }
    use(load(folder.path()));
  }
}

}  // namespace
}  // namespace fairway::topology
