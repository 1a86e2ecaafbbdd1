#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/counter_range.h"
#include "collectives/job/launcher.h"
#include "sys/error.h"
#include "sys/own_folder.h"

namespace fairway::collectives {
namespace {

constexpr auto kLook = std::chrono::milliseconds(5);
constexpr Timeout kExchangeSlice{100'000};
constexpr auto kRemoval = std::chrono::seconds(1);  // rank 0 does it at once
constexpr auto kOld = std::chrono::hours(1);

std::string read_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Status write_line(const std::filesystem::path& path, const std::string& line) {
  errno = 0;
  std::ofstream file(path, std::ios::trunc);
  file << line << '\n';
  file.close();
  return file ? Status() : sys::system_status(errno, fmt::format("cannot write {}", path.string()));
}

std::string make_key() {
  std::random_device chance;
  std::string key;
  for (int word = 0; word < 4; ++word) key += fmt::format("{:08x}", chance());
  return key;
}

// What a rank says of itself: "PID STARTED NAMESPACE SIZE".
struct Process {
  int number = 0;
  std::uint64_t started = 0, space = 0;
  int size = 0;

  [[nodiscard]] std::string line() const { return fmt::format("{} {} {} {}", number, started, space, size); }
  static Process from(const std::string& line) {
    Process read;
    std::istringstream words(line);
    return words >> read.number >> read.started >> read.space >> read.size ? read : Process();
  }
};

// By its number, or where numbers mean others by the lock that it holds.
bool lives(const std::filesystem::path& file) {
  const Process found = Process::from(read_line(file));
  if (found.number == 0) return false;
  if (found.space == process_namespace()) {
    const ProcessFacts facts = facts_of(found.number);
    return facts.state != 'X' && facts.started == found.started;
  }
  const sys::Fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// The rank of a file "process-RANK"; -1: it is another.
int rank_of(const std::filesystem::path& file) {
  constexpr std::string_view kProcess = "process-";
  const std::string name = file.filename();
  int rank = -1;
  if (name.starts_with(kProcess)) (void)std::from_chars(name.data() + kProcess.size(), name.data() + name.size(), rank);
  return rank;
}

}  // namespace

// An exclusive lock of the folder, by a file in it; a resource.
class MeetingPlace::Lock {
 public:
  explicit Lock(int file) : file_(file) {}
  ~Lock() {
    if (file_ >= 0) ::close(file_);
  }
  Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Lock& operator=(Lock&&) = delete;

 private:
  int file_;
};

std::filesystem::path MeetingPlace::usual_base() {
  if (::access("/dev/shm", W_OK) == 0) return "/dev/shm";
  std::error_code error;
  const auto other = std::filesystem::temp_directory_path(error);
  return error ? std::filesystem::path("/tmp") : other;
}

Result<MeetingPlace> MeetingPlace::open(const std::string& job, int rank, int size, Time deadline, std::stop_token stop,
                                        const std::filesystem::path& base) {
  const auto own = sys::make_own_folder(base);
  if (!own) return own.status();
  return MeetingPlace(*own / fmt::format("job-{:016x}{:016x}", hash_of(job), hash_of(job + "/2")), rank, size, deadline,
                      std::move(stop));
}

std::filesystem::path MeetingPlace::file(const char* what, int rank) const {
  return folder_ / fmt::format("{}-{}", what, rank);
}

Status MeetingPlace::pause() const {
  if (stop_.stop_requested()) return {ErrorCode::cancelled, "joining was stopped"};
  if (until(deadline_).count() == 0) return {ErrorCode::timed_out, ""};
  std::this_thread::sleep_for(kLook);
  return {};
}

// The folder may be removed by a job that has met, between any two lines of this: then it is made anew.
Result<MeetingPlace::Lock> MeetingPlace::lock() const {
  const std::filesystem::path path = folder_ / "lock";
  const auto failed = [&path] { return sys::system_status(errno, fmt::format("cannot lock {}", path.string())); };
  for (;;) {
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return failed();
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 && errno != ENOENT) return failed();
    if (file >= 0) {
      Lock held(file);
      if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
        struct stat locked {};
        if (::fstat(file, &locked) == 0 && locked.st_nlink > 0) return held;
        continue;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) return failed();
    }
    if (Status status = pause(); !status)
      return status.code() == ErrorCode::cancelled
                 ? status
                 : Status(ErrorCode::timed_out, fmt::format("another process of this job holds {}", path.string()));
  }
}

void MeetingPlace::forget(int rank) const {
  std::error_code ignored;
  std::filesystem::remove(file("rank", rank), ignored);
  std::filesystem::remove(file("process", rank), ignored);
  if (rank == 0) std::filesystem::remove(folder_ / "key", ignored);
}

void MeetingPlace::clear_away_the_dead() const {
  std::vector<int> dead;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error))
    if (const int rank = rank_of(entry.path()); rank >= 0 && !lives(entry.path())) dead.push_back(rank);
  for (const int rank : dead) forget(rank);
}

// Who comes while one is removed has waited for the lock in it, and makes the folder anew.
void MeetingPlace::clear_away_old_jobs() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.parent_path(), error)) {
    if (entry.path() == folder_ || !entry.path().filename().string().starts_with("job-")) continue;
    const auto written = entry.last_write_time(error);
    if (error || std::filesystem::file_time_type::clock::now() - written < kOld) continue;
    const sys::Fd held(::open((entry.path() / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (held && ::flock(held.get(), LOCK_EX | LOCK_NB) != 0) continue;
    bool used = false;
    for (const auto& file : std::filesystem::directory_iterator(entry.path(), error))
      used = used || (rank_of(file.path()) >= 0 && lives(file.path()));
    if (!used) std::filesystem::remove_all(entry.path(), error);
  }
}

Status MeetingPlace::claim(const std::string& line) {
  const auto own = file("process", rank_);
  claimed_ = std::make_shared<sys::Fd>(::open(own.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!*claimed_ || ::flock(claimed_->get(), LOCK_EX | LOCK_NB) != 0)
    return sys::system_status(errno, fmt::format("cannot lock {}", own.string()));
  return write_line(own, line);
}

Status MeetingPlace::check_size() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const int rank = rank_of(entry.path());
    const Process other = Process::from(read_line(entry.path()));
    if (rank < 0 || other.number == 0 || other.size == size_) continue;
    return {
        ErrorCode::invalid_argument,
        fmt::format("process {}, rank {} of this job, says that it has {} ranks, and this process says {}: give all "
                    "the same number, and each of several jobs at a time another FAIRWAY_JOB",
                    other.number, rank, other.size, size_)};
  }
  return {};
}

Status MeetingPlace::enter() {
  const int process = ::getpid();
  const std::string mine = Process{process, facts_of(process).started, process_namespace(), size_}.line();
  const Time patience = Clock::now() + kRemoval;
  clear_away_old_jobs();
  for (;;) {
    {
      const auto held = lock();
      if (!held) return held.status();
      clear_away_the_dead();
      const std::string other = read_line(file("process", rank_));
      if (other.empty()) {
        Status status = check_size();
        if (!status) return status;
        status = claim(mine);
        if (status && rank_ == 0) status = write_line(folder_ / "key", make_key());
        if (!status) forget(rank_);
        return status;
      }
      // This process has met here before, and rank 0 has not removed the folder yet.
      if (other != mine || Clock::now() >= patience) {
        if (Status status = check_size(); !status) return status;
        return {
            ErrorCode::already_exists,
            fmt::format("process {} is rank {} of this job: give each of several jobs at a time another FAIRWAY_JOB",
                        Process::from(other).number, rank_)};
      }
    }
    if (Status status = pause(); !status) return status.with_context("this process has joined before");
  }
}

Result<std::string> MeetingPlace::key() {
  for (;;) {
    {
      const auto held = lock();
      if (!held) return held.status();
      if (std::string key = read_line(folder_ / "key"); !key.empty()) return key;
    }
    Status status = pause();
    if (status.code() == ErrorCode::timed_out)
      return Status(ErrorCode::timed_out, fmt::format("rank 0 has left no key in {}", folder_.string()))
          .with_peer("rank 0");
    if (!status) return status;
  }
}

Result<std::vector<std::string>> MeetingPlace::exchange(const std::string& address) {
  for (;;) {
    auto addresses =
        exchange_addresses(folder_.string(), rank_, size_, address, std::min(until(deadline_), kExchangeSlice));
    if (addresses || addresses.status().code() != ErrorCode::timed_out || until(deadline_).count() == 0)
      return addresses;
    if (stop_.stop_requested()) return Status(ErrorCode::cancelled, "joining was stopped");
  }
}

void MeetingPlace::leave() {
  deadline_ = std::max(deadline_, Clock::now() + std::chrono::seconds(1));
  stop_ = {};
  if (const auto held = lock()) forget(rank_);
  claimed_.reset();
}

void MeetingPlace::remove() {
  deadline_ = std::max(deadline_, Clock::now() + std::chrono::seconds(1));
  stop_ = {};
  std::error_code ignored;
  if (const auto held = lock()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace fairway::collectives

namespace fairway {

namespace {

constexpr int kMostRanks = 65536;  // EngineOptions::max_peers

}  // namespace

Result<std::vector<std::string>> exchange_addresses(const std::string& folder, int rank, int size,
                                                    const std::string& address, Timeout timeout) {
  if (rank < 0 || rank >= size)
    return Status(ErrorCode::invalid_argument, fmt::format("rank {} of {}: there is no such rank", rank, size));
  if (size > kMostRanks)
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} ranks: an engine has at most {} peers", size, kMostRanks));
  if (address.empty() || address.find('\n') != std::string::npos)
    return Status(ErrorCode::invalid_argument, "address is empty, or more than one line");
  const auto deadline = collectives::after(collectives::Clock::now(), timeout);
  const std::filesystem::path place(folder);
  const auto file = [&](int of) { return place / fmt::format("rank-{}", of); };
  // Under another name first: nobody reads half an address.
  const auto own = file(rank), half = place / fmt::format(".rank-{}.new", rank);
  {
    errno = 0;
    std::ofstream out(half, std::ios::trunc);
    out << address << '\n';
    out.close();
    if (!out) return sys::system_status(errno, fmt::format("cannot write {}", half.string()));
  }
  std::error_code error;
  std::filesystem::rename(half, own, error);
  if (error) return Status(ErrorCode::system_error, fmt::format("cannot write {}: {}", own.string(), error.message()));

  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  for (;;) {
    std::string missing;
    for (int other = 0; other < size; ++other) {
      std::string& found = addresses[static_cast<std::size_t>(other)];
      if (found.empty()) {
        std::ifstream in(file(other));
        std::getline(in, found);
      }
      if (found.empty()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
    }
    if (missing.empty()) return addresses;
    if (collectives::until(deadline).count() == 0)
      return Status(ErrorCode::timed_out, fmt::format("no address in {} of these ranks: {}", folder, missing));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace fairway
