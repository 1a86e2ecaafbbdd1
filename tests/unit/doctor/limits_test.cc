#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "doctor/gather.h"
#include "doctor/report.h"
#include "reading_support.h"
#include "topology/load.h"

// What is more than any machine has is left out by name: "ok" speaks of what was read.
namespace fairway::doctor::testing {
namespace {

bool says(const Report& report, const std::string& words) {
  return std::any_of(report.unseen.begin(), report.unseen.end(),
                     [&](const auto& one) { return one.find(words) != one.npos; });
}

TEST(DoctorLimits, RdmaDevicesThatAreLeftOutAreNamed) {
  std::string ibstat;
  for (int i = 0; i < 4097; ++i)
    ibstat += fmt::format(
        "CA 'mlx5_{}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n",
        i);
  EXPECT_TRUE(says(alone(ibstat), "RDMA devices: there are more than 4096"));
  const auto most = topology::evidence_of(ibstat.substr(0, ibstat.find("CA 'mlx5_4096'")), "paste.txt");
  ASSERT_TRUE(most) << most.status().message();
  for (const auto& note : most->machine.notes) EXPECT_NE(note.kind, topology::NoteKind::left_out) << note.text;
}

TEST(DoctorLimits, FieldsOfADeviceThatIsLeftOutAreNoOthers) {
  std::string ibstat;
  for (int i = 0; i < 4096; ++i) ibstat += fmt::format("CA 'mlx5_{}'\n\tCA type: MT4129\n", i);
  ibstat += "CA 'mlx5_9999'\n\tFirmware version: 28.1.1\n";
  const Folder folder;
  const auto found = read_case(folder.write("paste.txt", ibstat));
  ASSERT_TRUE(found) << found.status().message();
  for (const auto& device : found->machine.rdma) EXPECT_FALSE(device.firmware) << device.name;
}

TEST(DoctorLimits, InterfacesThatAreLeftOutAreNamed) {
  std::string brief;
  for (int i = 0; i < 16385; ++i) brief += fmt::format("eth{}  UP  10.0.0.1/24\n", i);
  const Folder folder;
  const auto found = read_case(folder.write("paste.txt", brief));
  ASSERT_TRUE(found) << found.status().message();
  const auto& notes = found->machine.notes;
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const auto& note) {
    return note.kind == topology::NoteKind::left_out && note.subject == "network interfaces";
  }));
}

TEST(DoctorLimits, OutputsThatAreLeftOutAreNamedWithTheirLines) {
  std::string fences;
  for (int i = 0; i < 4100; ++i) fences += fmt::format("```\nbnxt_re{}: state\n```\nwords\n", i);
  fences += "```\nCA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n```\n";
  const auto outputs = topology::cut_outputs(fences, "paste.txt");
  ASSERT_FALSE(outputs.empty());
  EXPECT_EQ(outputs.back().state, topology::ReadState::cut);
  EXPECT_EQ(outputs.back().numbers.back(), 4100U * 4 + 6);
}

TEST(DoctorLimits, HostsThatAreLeftOutAreNamedAndNoOthers) {
  std::string lines;
  for (int i = 0; i < 1026; ++i) lines += fmt::format("node{}: mlx5_0 port 1 ==> eth0 (Up)\n", i);
  const auto evidence = topology::evidence_of(lines, "paste.txt");
  ASSERT_TRUE(evidence) << evidence.status().message();
  EXPECT_EQ(evidence->hosts.size(), 1023U);
  ASSERT_FALSE(evidence->others.empty());
  EXPECT_EQ(evidence->others.front().state, topology::ReadState::cut);
  EXPECT_EQ(evidence->others.front().gave, "there are more than 1024: 2 others are left out");
  EXPECT_EQ(evidence->outputs.size(), 1U);
}

TEST(DoctorLimits, WhatACapturedPortHasMoreOfIsNamed) {
  const Folder folder;
  const auto port = folder.path() + "/sys/class/infiniband/mlx5_0/ports/1";
  for (const char* list : {"gids", "pkeys", "hw_counters"}) {
    std::filesystem::create_directories(port + "/" + list);
    for (int i = 0; i < 1024; ++i) std::ofstream(fmt::format("{}/{}/{}", port, list, i)) << "32767\n";
  }
  auto report = report_of(folder.path());
  for (const char* what : {"GIDs of a port", "partition keys of a port", "counters of a port"})
    EXPECT_FALSE(says(report, what)) << what;
  for (const char* list : {"gids", "pkeys", "hw_counters"})
    std::ofstream(fmt::format("{}/{}/1024", port, list)) << "32767\n";
  report = report_of(folder.path());
  for (const char* what : {"GIDs of a port", "partition keys of a port", "counters of a port"})
    EXPECT_TRUE(says(report, fmt::format("{}: there are more than 1024", what))) << what;
  EXPECT_FALSE(report.verdict.whole);
}

TEST(DoctorLimits, AKernelLogThatIsTooLargeIsNamed) {
  const Folder folder;
  std::filesystem::create_directories(folder.path() + "/sys/class/infiniband/mlx5_0/ports/1");
  std::filesystem::create_directories(folder.path() + "/var/log");
  const auto log =
      folder.write("var/log/dmesg", "[    1.0] NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.\n");
  std::filesystem::resize_file(log, 34U << 20);
  const auto report = report_of(folder.path());
  const auto& text = text_named(report, "/var/log/dmesg");
  EXPECT_EQ(text.state, topology::ReadState::cut);
  EXPECT_NE(text.gave.find("larger than 33 MiB"), text.gave.npos) << text.gave;
  EXPECT_FALSE(report.verdict.whole);
  const auto json = json_of(topology::Machine{}, report);
  ASSERT_TRUE(json) << json.status().message();
  EXPECT_NE(json->find("larger than 33 MiB"), json->npos);
}

TEST(DoctorLimits, FactsThatAreLeftOutAreCounted) {
  Facts facts;
  for (int i = 0; i < 200003; ++i) facts.set(std::to_string(i), "1", "a.txt:1");
  EXPECT_EQ(facts.left_out(), 3U);
  facts.set("7", "1", "a.txt:1");
  EXPECT_EQ(facts.left_out(), 3U);
}

TEST(DoctorLimits, MeasuredRowsThatAreLeftOutMakeTheTextCutOff) {
  std::string rows = "# nThread 1 nGpus 8\n#       size   count type redop root time algbw busbw #wrong\n";
  for (int i = 0; i < 100001; ++i) rows += "1048576 262144 float sum -1 30.1 34.8 60.9 0\n";
  topology::Output output = std::move(topology::cut_outputs(rows, "paste.txt").front());
  const topology::Machine machine;
  Facts facts;
  std::vector<Measurement> measured;
  read_output(output, {machine, facts, measured});
  EXPECT_EQ(measured.size(), 100000U);
  EXPECT_FALSE(output.cut.empty());
}

}  // namespace
}  // namespace fairway::doctor::testing
