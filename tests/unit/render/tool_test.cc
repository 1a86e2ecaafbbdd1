// The tool as a shell sees it: exit codes, one line on stderr, readers that go away.
// size: one case for each habit of the command line, all by the same few lines
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "render_support.h"

namespace fairway::render {
namespace {

struct Outcome {
  int exit = -1;
  std::string output;  // stdout, or what the command line redirects there
};

// `arguments` are shell words after the program's name.
Outcome run_tool(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen(("'" FAIRWAY_TOOL "' " + arguments).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe); got > 0;
       got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), got);
  }
  const int state = pclose(pipe);
  outcome.exit = WIFEXITED(state) ? WEXITSTATUS(state) : 128;
  return outcome;
}

std::string h20() {
  return FAIRWAY_SOURCE_DIR "/tests/machines/h20.json";
}

void fails_in_one_line(const std::string& arguments, int exit, const std::string& words) {
  const Outcome outcome = run_tool(arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(outcome.exit, exit) << arguments;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
}

TEST(Tool, HelpNamesNoLimitThatIsOnlyTheTypes) {
  for (const char* command : {"soak", "soak collectives"}) {
    const auto text = run_tool(std::string(command) + " --help").output;
    EXPECT_EQ(text.find("e+"), std::string::npos) << text;
    EXPECT_NE(text.find("1 or more"), std::string::npos) << text;
  }
}

TEST(Tool, AFileIsReplacedWholeOrLeftAlone) {
  namespace fs = std::filesystem;
  std::string folder = testing::TempDir() + "fairway-files-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/report.svg", link = folder + "/link.svg";
  const std::string draw = "topo --from " + h20() + " --svg ";
  const auto whole = run_tool(draw + "-").output;
  ASSERT_GT(whole.size(), 8192U);
  run_tool("version >" + file);
  const auto before = read_text(file);
  fs::permissions(file, fs::perms(0640));
  fs::create_symlink("report.svg", link);
  // A full disk: no file may grow beyond 4 KiB.
  std::string command = "sh -c \"trap '' XFSZ; ulimit -f 8; exec '" FAIRWAY_TOOL "' " + draw + file + " 2>/dev/null\"";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(read_text(file), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2) << "nothing is left beside it";

  EXPECT_EQ(run_tool(draw + link).exit, 0);
  EXPECT_EQ(read_text(file), whole);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0640));
  EXPECT_EQ(run_tool(draw + "/dev/stdout").output, whole);
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(run_tool(draw + folder + "/pipe & cat " + folder + "/pipe; wait").output, whole);
  EXPECT_TRUE(fs::is_fifo(folder + "/pipe"));
  fs::remove_all(folder);
}

TEST(Tool, MistypedCommandsAndOptionsAreUsageErrorsWithAHint) {
  fails_in_one_line("tpoo", 2, "there is no command 'tpoo'");
  fails_in_one_line("topo --frm x", 2, "did you mean '--from'?");
  fails_in_one_line("topo nics --gpu many", 2, "--gpu takes a number");
  fails_in_one_line("topo export", 2, "FORMAT is required");
  fails_in_one_line("topo export xml", 2, "FORMAT: 'xml' is none of nccl");
  fails_in_one_line("peer --help", 2, "there is no command 'peer'");
  fails_in_one_line("topo nisc --help", 2, "there is no command 'nisc' here; did you mean 'nics'?");
  fails_in_one_line("--json topo", 2, "--json goes behind the command it is for: 'fairway topo --json'");
  fails_in_one_line("--jsno topo", 2, "there is no option '--jsno' here; did you mean '--json'?");
  fails_in_one_line("topo --theme drak", 2, "--theme: 'drak' is none of auto, light, dark; did you mean 'dark'?");
  fails_in_one_line("topo --svg - --png -", 2, "--svg and --png both go to standard output");
  fails_in_one_line("topo --json --html -", 2, "--json and --html both go to standard output");
  fails_in_one_line("topo --svg /tmp/a --html /tmp/a", 2, "--svg and --html both go to /tmp/a");
  fails_in_one_line("topo --from ''", 2, "--from: the name is empty");
  fails_in_one_line("topo --svg", 2, "--svg needs a FILE");
  fails_in_one_line("doctor --with", 2, "--with needs an ADDRESS");
  fails_in_one_line("soak --rounds 0", 2, "--rounds: '0' is no number from 1 on");
  fails_in_one_line("topo nics --numa -1", 2, "--numa: '-1' is no number from 0 to 4095");
  fails_in_one_line("topo --json --tree", 2, "exclude each other");
  fails_in_one_line("doctor --measure --with nonsense", 2, "'nonsense' is no HOST:PORT");
  fails_in_one_line("doctor --json --html -", 2, "--json and --html both go to standard output");
  fails_in_one_line("doctor --html - --prom -", 2, "--html and --prom both go to standard output");
  fails_in_one_line("doctor --html /tmp/a --prom /tmp/a", 2, "--html and --prom both go to /tmp/a");
}

TEST(Tool, AMistypedOptionIsNamedAlsoWhereAnArgumentIsMissing) {
  fails_in_one_line("topo diff --nonsense", 2, "there is no option '--nonsense' here");
  fails_in_one_line("ping --cuont 3", 2, "did you mean '--count'?");
  fails_in_one_line("ping --count 3", 2, "ADDRESS is required");
  const Outcome hidden = run_tool("bench --server 2>&1");
  EXPECT_EQ(hidden.output.find("'--serve'"), std::string::npos) << "not for users: " << hidden.output;
}

TEST(Tool, VersionIsACommandLikeOthers) {
  const Outcome flag = run_tool("--version"), command = run_tool("version"), help = run_tool("help version");
  EXPECT_EQ(command.exit, 0);
  EXPECT_EQ(command.output, flag.output);
  EXPECT_EQ(help.exit, 0);
  EXPECT_NE(help.output.find("Usage: fairway version"), std::string::npos) << help.output;
  EXPECT_EQ(run_tool("version --help").output, help.output);
  EXPECT_EQ(run_tool("help help").output, run_tool("help").output);
  fails_in_one_line("version 3", 2, "fairway version: takes no further argument, but got '3'");
}

TEST(Tool, AnEmptyFolderIsCalledSo) {
  char folder[] = "/tmp/fairway-empty-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  for (const char* command : {"topo", "topo nics", "predict"})
    fails_in_one_line(std::string(command) + " --from " + folder, 2, std::string(folder) + ": the folder is empty");
  std::filesystem::remove(folder);
}

TEST(Tool, OptionsThatWouldBeIgnoredAreErrors) {
  fails_in_one_line("bench 127.0.0.1:4000 --listen 127.0.0.1:0", 2, "ADDRESS excludes --listen");
  fails_in_one_line("sim --seed 3 --seeds 1..2", 2, "--seed");
  fails_in_one_line("sim --seeds 1..2 --trace", 2, "--seeds excludes --trace");
  fails_in_one_line("predict --routes --from " + h20(), 2, "--routes compares the routes of one flow: name it");
  fails_in_one_line("predict --nic 0 --from " + h20(), 2, "--nic goes with --measured or --calibrate");
  fails_in_one_line("predict --trials 5 --from " + h20(), 2, "--trials requires --fabric");
  fails_in_one_line("predict --calibration a --no-calibration", 2, "--calibration excludes --no-calibration");
}

TEST(Tool, NumbersThatAreNoneAreRefused) {
  for (const char* none : {"-1", "0", "x", "3x", " 3", "1e3", "18446744073709551616"}) {
    fails_in_one_line(std::string("sim --seed '") + none + "'", 2, std::string("--seed: '") + none + "' is no number");
    fails_in_one_line(std::string("sim --seeds '1..") + none + "'", 2,
                      "is neither one seed, a number from 1, nor a range");
  }
  fails_in_one_line("sim --collectives 4 --only barrier,nonsense", 2, "nonsense");
  fails_in_one_line("sim --seeds 5..1", 2, "'5..1' is neither");
  // The last of all numbers has no successor: this campaign once had no end.
  const Outcome last = run_tool("sim --seeds 18446744073709551615 --jobs 1");
  EXPECT_NE(last.output.find("seeds                    1 "), std::string::npos) << last.output;
  fails_in_one_line("bench --seconds nan", 2, "--seconds: 'nan' is no number from 0 to 3600");
  fails_in_one_line("who-hangs --after nan", 2, "--after: 'nan' is no number");
}

TEST(Tool, AnEmptyNameIsNotAMissingOne) {
  for (const char* arguments : {"topo lint ''", "topo lint --against ''", "topo diff a ''", "topo diff '' a",
                                "topo snapshot ''", "topo export nccl -o ''", "topo --svg ''", "predict --measured ''",
                                "predict --calibrate ''", "predict --calibration ''", "predict --fabric ''",
                                "doctor fleet a ''", "bench --json ''", "bench --csv ''", "bench collectives --svg ''"})
    fails_in_one_line(arguments, 2, "the name is empty");
}

TEST(Tool, AnEmptyItemOfAListIsAnErrorInEveryList) {
  fails_in_one_line("ping --via shm,,tcp", 2, "--via: 'shm,,tcp' has an empty item; did you mean 'shm,tcp'?");
  fails_in_one_line("ping --via shm,", 2, "--via: 'shm,' has an empty item; did you mean 'shm'?");
  fails_in_one_line("ping --via ,", 2, "--via: ',' names nothing: leave the option out, or give it a value");
  fails_in_one_line("ping --via ''", 2, "--via: '' names nothing");
  fails_in_one_line("ping --via shm --via ,tcp", 2, "--via: ',tcp' has an empty item");
  fails_in_one_line("bench --size 8,,4K", 2, "--size: '8,,4K' has an empty item; did you mean '8,4K'?");
  fails_in_one_line("bench --operation write,", 2, "--operation: 'write,' has an empty item");
  fails_in_one_line("bench compare shm,,tcp", 2, "PATHS: 'shm,,tcp' has an empty item");
  fails_in_one_line("bench compare shm, tcp", 2, "PATHS: 'shm,' has an empty item");
  fails_in_one_line("predict --what-if a=1,,b=2", 2, "--what-if: 'a=1,,b=2' has an empty item");
  fails_in_one_line("bench --size 8,x", 2, "'x' is no size");
  fails_in_one_line("ping --via shm,tpc", 2, "'tpc' is none of");
}

TEST(Tool, FailuresNameTheThing) {
  fails_in_one_line("topo --from /nowhere/at/all", 2, "/nowhere/at/all");
  fails_in_one_line("topo lint /nowhere/at/all", 2, "/nowhere/at/all");
  fails_in_one_line("topo diff " + h20() + " /nowhere/at/all", 2, "/nowhere/at/all");
  fails_in_one_line("predict --from /nowhere/at/all", 2, "/nowhere/at/all");
  fails_in_one_line("predict --measured /nowhere/at/all --from " + h20(), 2, "/nowhere/at/all");
  fails_in_one_line("predict gpu77:nic0 --from " + h20(), 1, "this machine has GPUs 0 to 7");
  fails_in_one_line("topo --from " + h20() + " --svg /nowhere/at/all.svg", 1, "cannot write /nowhere/at/all.svg");
  fails_in_one_line("topo --from " + h20() + " --html /dev/full", 1, "No space left on device");
  fails_in_one_line("bench --seconds 0 --json /", 1, "cannot write /: Is a directory");
  fails_in_one_line("ping peer --directory http://localhost", 2,
                    "'http://localhost' is none of HOST:PORT of an engine");
  const Outcome cut = run_tool("--version >/dev/null; cut=$(mktemp) && echo '{' >$cut; '" FAIRWAY_TOOL
                               "' topo lint $cut 2>&1; rm $cut");
  EXPECT_NE(cut.output.find("not JSON: parse error at line 2, column 1"), std::string::npos) << cut.output;
  fails_in_one_line("topo nics --gpu 99 --from " + h20(), 1, "there are GPU0-7");
  fails_in_one_line("topo hca nothing --from " + h20(), 1, "mlx5_bond_0-3");
}

TEST(Tool, TheRateOfANicIsThePredictedOne) {
  // Across sockets neither the port nor the PCIe link decides: what `predict` says of the path is what `topo nics`
  // says.
  const Outcome nics = run_tool("topo nics --gpu 4 --from " + h20());
  const Outcome flow = run_tool("predict gpu4:mlx5_bond_0 --from " + h20());
  EXPECT_NE(nics.output.find("across sockets; 15.5 GB/s expected (10.0-22.0)"), std::string::npos) << nics.output;
  EXPECT_NE(flow.output.find("15.5 (10.0-22.0)"), std::string::npos) << flow.output;
}

TEST(Tool, ListsTakeCommas) {
  const Outcome spaces =
      run_tool("predict gpu0:nic0 gpu1:nic0 --what-if qps=4 --what-if round-robin=yes --from " + h20());
  const Outcome commas = run_tool("predict gpu0:nic0,gpu1:nic0 --what-if qps=4,round-robin=yes --from " + h20());
  EXPECT_EQ(spaces.exit, 0) << spaces.output;
  EXPECT_EQ(spaces.output, commas.output);
}

TEST(Tool, SaysHowToGetPngsWhereTheConverterIsAbsent) {
  const Outcome outcome = run_tool("topo --from " + h20() + " --png /dev/null 2>&1");
  if (outcome.exit == 0) {
    const std::string without = "env PATH=/nowhere '" FAIRWAY_TOOL "' topo --from " + h20() + " --png /dev/null 2>&1";
    EXPECT_NE(run_tool("--version >/dev/null; " + without).output.find("librsvg2-bin"), std::string::npos);
  } else {
    EXPECT_NE(outcome.output.find("librsvg2-bin"), std::string::npos) << outcome.output;
  }
}

TEST(Tool, AReaderThatGoesAwayIsNoFailure) {
  // The shell of popen has no PIPESTATUS: the tool's own exit goes to stderr, and that to us.
  const std::string tool = "'" FAIRWAY_TOOL "' topo --json --from " + h20();
  const Outcome outcome =
      run_tool("--version >/dev/null; { { " + tool + "; echo exit $? >&3; } | head -c 10 >/dev/null; } 3>&1");
  EXPECT_EQ(outcome.output, "exit 0\n");
}

TEST(Tool, AFullDiskIsAFailure) {
  const Outcome outcome = run_tool("topo --from " + h20() + " 2>&1 >/dev/full");
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_NE(outcome.output.find("cannot write to standard output"), std::string::npos) << outcome.output;
  // Said once, and not forgotten, by a command that prints line by line.
  const Outcome lines = run_tool("sim --seed 3 --trace 2>&1 >/dev/full");
  EXPECT_EQ(lines.exit, 1);
  EXPECT_EQ(std::count(lines.output.begin(), lines.output.end(), '\n'), 1) << lines.output;
  // Nor by the process that it measures with.
  const Outcome rows = run_tool("bench --via tcp --size 8 --seconds 0 2>&1 >/dev/full");
  EXPECT_EQ(rows.exit, 1);
  EXPECT_EQ(rows.output, "fairway bench: cannot write to standard output: No space left on device\n");
}

TEST(Tool, ATerminalTooNarrowForTheTablesIsStillOne) {
  const Outcome outcome =
      run_tool("--version >/dev/null; script -qec 'stty cols 20; " FAIRWAY_TOOL " --help' /dev/null 2>&1");
  if (outcome.output.find("Usage: fairway") == std::string::npos) GTEST_SKIP() << "no script(1): " << outcome.output;
  EXPECT_NE(outcome.output.find("along the fastest path\r\n"), std::string::npos) << outcome.output;
}

TEST(Tool, EveryCommandSaysWhatItDoes) {
  for (const char* command : {"", "topo", "topo nics", "topo hca", "topo lint", "topo diff", "topo snapshot",
                              "topo export", "topo catalog", "completion"}) {
    const Outcome outcome = run_tool(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit, 0) << command;
    EXPECT_NE(outcome.output.find("Usage: fairway"), std::string::npos) << command;
  }
}

TEST(Tool, SizesAreReadAlikeEverywhere) {
  const auto seconds = [](const std::string& size) {
    const Outcome outcome = run_tool("predict gpu0:nic0 --json --from " + h20() + " --size " + size);
    EXPECT_EQ(outcome.exit, 0) << size;
    const std::size_t at = outcome.output.find("\"size_bytes\": ");
    return at == std::string::npos ? "" : outcome.output.substr(at + 14, outcome.output.find(',', at) - at - 14);
  };
  for (const char* four : {"4096", "4K", "4k", "4KiB", "4kib", "4Ki", "4096B"})
    EXPECT_EQ(seconds(four), "4096") << four;
  EXPECT_EQ(seconds("4KB"), "4000");
  EXPECT_EQ(seconds("1.5K"), "1536");
  EXPECT_EQ(seconds("1MB"), "1e+06");
  EXPECT_EQ(run_tool("predict gpu0:nic0 --size 1T --from " + h20() + " >/dev/null").exit, 0);
  for (const char* bits : {"10Gb", "4kb", "8b", "1.5Mb"})
    fails_in_one_line(std::string("predict gpu0:nic0 --from ") + h20() + " --size " + bits, 2, "is in bits: say ");
  for (const char* none : {"", "K", "-4", "4Q", "4KiBi", "0", "0.3", "1e400", "nan", "4 K", "0x10"})
    fails_in_one_line(std::string("predict gpu0:nic0 --from ") + h20() + " --size '" + none + "'", 2, "is no size");
}

TEST(Tool, TheSummaryCountsWhatLintFinds) {
  const std::string pair = FAIRWAY_SOURCE_DIR "/tests/machines/nvlink_bridge_pair.json";
  for (const std::string& machine : {h20(), pair}) {
    const std::string counts = run_tool("topo lint --from " + machine).output;
    const std::size_t at = counts.rfind(" notice");
    const std::size_t begin = counts.rfind(' ', at - 1) + 1;
    const std::string notices = counts.substr(begin, at - begin);
    const bool told = run_tool("topo --from " + machine).output.find(notices + " notice") != std::string::npos;
    EXPECT_EQ(told, notices != "0") << machine << ": " << notices;
  }
}

TEST(Tool, PicturesOfTheDocumentsAreTheToolsOwn) {
  const std::string images = FAIRWAY_SOURCE_DIR "/docs/images/";
  std::string flows;
  for (int gpu = 0; gpu < 8; ++gpu) flows += " gpu" + std::to_string(gpu) + ":nic0";
  const Outcome traffic = run_tool("predict" + flows + " --alone --from " + h20() + " --svg -");
  EXPECT_EQ(traffic.output, read_text(images + "h20_traffic.svg")) << "README.md has the command that draws it";
  EXPECT_EQ(run_tool("topo --from " + h20() + " --svg -").output, read_text(images + "h20.svg"));
}

TEST(Tool, FlowsAreDrawnWhereThereAreSome) {
  fails_in_one_line("predict --svg x.svg --from " + h20(), 2, "--svg draws flows: name them, as in gpu0:nic0");
  fails_in_one_line("predict gpu0:nic0 --svg - --json --from " + h20(), 2,
                    "--json and --svg both go to standard output");
  fails_in_one_line("predict gpu0:nic0 --svg /nowhere/x.svg --from " + h20(), 1, "cannot write /nowhere/x.svg");
}

TEST(Tool, DiffTellsDifferentFromUnreadable) {
  const std::string other = FAIRWAY_SOURCE_DIR "/tests/machines/dgx1v.json";
  EXPECT_EQ(run_tool("topo diff " + h20() + " " + other + " >/dev/null").exit, 1);
}

TEST(Tool, EqualMachinesDoNotDifferAndASnapshotOfASnapshotIsTheSame) {
  EXPECT_EQ(run_tool("topo diff " + h20() + " " + h20()).exit, 0);
  const std::string first = run_tool("topo snapshot - --from " + h20()).output;
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, read_text(h20()));
}

TEST(Tool, CompletionsKnowEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run_tool(std::string("completion ") + shell);
    EXPECT_EQ(outcome.exit, 0) << shell;
    for (const char* word : {"topo", "nics", "snapshot", "from", "keep-identities"}) {
      EXPECT_NE(outcome.output.find(word), std::string::npos) << shell << ": " << word;
    }
  }
  const Outcome completed = run_tool(
      "completion bash | bash -c 'source /dev/stdin; COMP_WORDS=(fairway topo n); COMP_CWORD=2; _fairway 2>/dev/null; "
      "echo ${COMPREPLY[@]}'");
  EXPECT_EQ(completed.output, "nics\n");
}

// Every command that reads a recorded machine reads it from standard input and from a pipe, once.
TEST(Tool, EvidenceComesByPipesToo) {
  const std::string from_file = run_tool("topo --from " + h20()).output;
  EXPECT_FALSE(from_file.empty());
  const auto piped = [](const std::string& arguments) {
    return run_tool(arguments + " < " + h20()).output;  // a file
  };
  EXPECT_EQ(piped("topo --from -"), from_file);
  const std::string cat = "cat " + h20() + " | '" FAIRWAY_TOOL "' ";
  const auto behind_cat = [&cat](const std::string& arguments) {
    return run_tool("completion bash > /dev/null; " + cat + arguments).output;
  };
  EXPECT_EQ(behind_cat("topo --from -"), from_file);
  EXPECT_EQ(behind_cat("topo --from /dev/stdin"), from_file);
  EXPECT_EQ(behind_cat("predict gpu0:nic0 --from -"), run_tool("predict gpu0:nic0 --from " + h20()).output);
  EXPECT_EQ(behind_cat("topo nics --gpu 3 --from -"), run_tool("topo nics --gpu 3 --from " + h20()).output);
  EXPECT_EQ(behind_cat("topo lint -"), run_tool("topo lint " + h20()).output);
  EXPECT_EQ(behind_cat("topo diff - " + h20()), "standard input and " + h20() + " do not differ\n");
  EXPECT_EQ(behind_cat("doctor --quiet --from -"), run_tool("doctor --quiet --from " + h20()).output);
  fails_in_one_line("topo --from - < /dev/null", 2, "standard input holds nothing, or was read already");
  fails_in_one_line("topo diff - - < " + h20(), 2, "standard input holds nothing, or was read already");
  fails_in_one_line("topo --from /dev/zero", 2, "/dev/zero: is not a regular file");
}

// The help of `words` and of every command below them.
void look_at_help(const std::string& words) {
  const std::string text = run_tool(words + " --help").output;
  EXPECT_NE(text.find("\nExample"), std::string::npos) << words << " shows no example\n" << text;
  EXPECT_EQ(text.find(") ("), std::string::npos) << words << ": one pair of brackets is enough\n" << text;
  std::istringstream lines(text);
  std::vector<std::string> below;
  std::string option, said;
  const auto close = [&] {
    if (!option.empty())
      EXPECT_NE(said.find("(default: "), std::string::npos) << words << ": " << option << " " << said;
    option.clear();
  };
  bool commands = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with("  ")) {
      if (line.empty() || line[2] != ' ') close();
      if (commands && line.size() > 2 && line[2] != ' ') below.push_back(line.substr(2, line.find(' ', 2) - 2));
      said += line.empty() ? "" : line.substr(std::min(line.size(), line.find_first_not_of(' ') - 1));
      if (!line.starts_with("  --")) continue;
      const std::size_t type = line.find(' ', 4) + 1;
      for (const char* numeric : {"UINT", "INT", "FLOAT", "COUNT", "SIZE", "SECONDS", "CLASS", "LEVEL", "HOPS", "{"})
        if (type != 0 && line.compare(type, std::string(numeric).size(), numeric) == 0) option = line, said = line;
    } else {
      close();
      commands = line == "Commands:" || (words.empty() && line.ends_with(":") && line != "Options:" &&
                                         line != "Examples:" && line != "Exit codes:");
    }
  }
  close();
  for (const std::string& command : below) look_at_help(words + " " + command);
}

TEST(Tool, EveryCommandShowsAnExampleAndWhatHoldsWithoutAnOption) {
  look_at_help("");
}

TEST(Tool, TopoAnswersWithinAFifthOfASecond) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_tool("topo --from " + h20() + " >/dev/null").exit, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  // The wall clock of a busy machine and of sanitizers says little: ten times the promise.
  EXPECT_LT(took.count(), 2.0);
}

}  // namespace
}  // namespace fairway::render
