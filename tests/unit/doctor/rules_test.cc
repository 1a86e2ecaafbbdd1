#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/report.h"
#include "predict/flow.h"
#include "rules_table.h"
#include "topology/text.h"

namespace fairway::doctor::testing {
namespace {

std::string titles_of(const Report& report) {
  std::string out;
  for (const auto& finding : report.findings)
    out += std::string(to_string(finding.level)) + " " + finding.rule + ": " + finding.title + "\n";
  return out;
}

std::vector<Pair> pairs() {
  std::vector<Pair> all(machine_pairs().begin(), machine_pairs().end());
  all.insert(all.end(), software_pairs().begin(), software_pairs().end());
  all.insert(all.end(), job_pairs().begin(), job_pairs().end());
  return all;
}

TEST(DoctorRules, TheHealthyServerHasNoFinding) {
  for (const auto& server : {healthy(), healthy_vm(), healthy_with_bonds()}) {
    const auto report = run(server);
    EXPECT_TRUE(report.verdict.ok) << titles_of(report);
    EXPECT_TRUE(report.findings.empty()) << titles_of(report);
    EXPECT_EQ(exit_code(report.verdict), 0);
  }
}

TEST(DoctorRules, EachHasAMachineThatTriggersIt) {
  for (const auto& pair : pairs()) {
    const auto report = run(pair.trigger());
    EXPECT_TRUE(has(report, pair.rule)) << pair.rule << " finds nothing\n" << titles_of(report);
  }
}

TEST(DoctorRules, EachHasANearMissThatDoesNot) {
  for (const auto& pair : pairs()) {
    const auto report = run(pair.near_miss());
    EXPECT_FALSE(has(report, pair.rule)) << pair.rule << " finds something in its near miss\n" << titles_of(report);
  }
}

TEST(DoctorRules, EveryRuleIsInTheTable) {
  std::set<std::string_view> tried;
  for (const auto& pair : pairs()) {
    EXPECT_NE(find_rule(pair.rule), nullptr) << pair.rule;
    EXPECT_TRUE(tried.insert(pair.rule).second) << pair.rule << " twice";
  }
  for (const auto* rule : all_rules()) EXPECT_TRUE(tried.contains(rule->id)) << rule->id << " has no machines";
  EXPECT_GE(all_rules().size(), 45U);
}

TEST(DoctorRules, EachFindingSaysWhatWasSeenAndWhere) {
  for (const auto& pair : pairs()) {
    const auto report = run(pair.trigger());
    for (const auto& finding : report.findings) {
      EXPECT_FALSE(finding.title.empty()) << pair.rule;
      EXPECT_FALSE(finding.fix.empty() && finding.advice.empty()) << finding.rule << " mends nothing";
      ASSERT_FALSE(finding.evidence.empty()) << finding.rule;
      for (const auto& seen : finding.evidence) {
        EXPECT_FALSE(seen.text.empty()) << finding.rule;
        EXPECT_FALSE(seen.where.empty()) << finding.rule;
      }
      if (finding.loss_gbps) {
        EXPECT_GE(*finding.loss_gbps, 0) << finding.rule;
      }
    }
  }
}

TEST(DoctorRules, AFixCanBeCopiedIntoAShell) {
  std::set<std::string> fixes;
  for (const auto& pair : pairs()) {
    const auto server = pair.trigger();
    for (const auto& finding : run(server).findings) {
      for (const auto& fix : finding.fix) {
        fixes.insert(fix);
        EXPECT_EQ(fix.find("->"), fix.npos) << finding.rule << " writes a file: " << fix;
        constexpr std::string_view kPredict = "fairway predict ";
        if (!fix.starts_with(kPredict)) continue;
        const auto words = topology::text::words(std::string_view(fix).substr(kPredict.size()));
        ASSERT_FALSE(words.empty()) << fix;
        for (const auto& end : topology::text::split(words[0], ':'))
          EXPECT_TRUE(predict::parse_endpoint(server.now.machine, end)) << fix;
      }
    }
  }
  // One shell starts the others: to start a process takes long with a sanitizer.
  const std::string file = ::testing::TempDir() + "fixes." + std::to_string(::getpid());
  std::ofstream out(file);
  for (const std::string& fix : fixes) out << fix << '\0';
  out.close();
  ASSERT_EQ(::setenv("FIXES", file.c_str(), 1), 0);
  EXPECT_EQ(std::system("bash -c 'while IFS= read -r -d \"\" fix; do printf \"%s\\n\" \"$fix\" | bash -n || "
                        "{ echo \"not for a shell: $fix\"; bad=1; }; done <\"$FIXES\"; exit ${bad:-0}'"),
            0);
  ::unsetenv("FIXES");
  std::remove(file.c_str());
}

TEST(DoctorRules, WithoutInputsTheySayWhyAndNeverThatAllIsWell) {
  auto server = healthy();
  server.now.facts = Facts();
  server.now.facts.miss("pci", "needs root");
  const auto report = run(server);
  EXPECT_TRUE(report.findings.empty()) << titles_of(report);
  const auto said = [&](std::string_view rule) {
    for (const auto& one : report.not_looked) {
      if (one.rule == rule) return one.why;
    }
    return std::string();
  };
  EXPECT_EQ(said("acs-redirect"), "needs root");
  EXPECT_EQ(said("pcie-max-read-request"), "needs root");
  for (const auto* rule : {"iommu-translating", "iommu-misspelled", "memlock", "governor", "no-gpu-registration",
                           "gpu-throttled", "topology-file", "changed", "few-reads"})
    EXPECT_NE(said(rule), "") << rule;
}

TEST(DoctorRules, TheirPageIsMadeOfTheirOwnText) {
  std::ifstream file(std::string(FAIRWAY_SOURCE_DIR) + "/docs/doctor-rules.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page, rules_page()) << "write it anew: fairway doctor rules --markdown > docs/doctor-rules.md";
}

TEST(DoctorRules, DearestFirstAndOneCauseOnce) {
  auto server = healthy();
  pci_of_nic(server, 2).link.width.value = 8;
  pci_of_nic(server, 2).link.speed_gts.value = 16;
  pci_of_nic(server, 5).link.speed_gts.value = 16;
  const auto report = run(server);
  ASSERT_EQ(report.findings.size(), 2U) << titles_of(report);
  EXPECT_GE(report.findings[0].loss_gbps.value_or(0), report.findings[1].loss_gbps.value_or(0));
  EXPECT_EQ(exit_code(report.verdict), 1);
  EXPECT_EQ(report.verdict.loss_gbps, report.findings[0].loss_gbps);
}

TEST(DoctorRules, WhatNoPathUsesIsANote) {
  // A NIC whose port is slow carries no bulk traffic: its narrow link costs nobody anything.
  auto server = healthy();
  port(server, 2).rate_gbps.value = 1;
  pci_of_nic(server, 2).link.width.value = 8;
  EXPECT_FALSE(has(run(server), "pcie-width", Level::warning));
}

}  // namespace
}  // namespace fairway::doctor::testing
