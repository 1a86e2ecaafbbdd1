#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"

// How NCCL uses the plugin beside its traffic: communicators, devices, listeners, and what it gets wrong.
namespace fairway::nccl {
namespace {

class NcclUse : public testing::Test {
 protected:
  NcclUse() { ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1); }
};

TEST_F(NcclUse, CommunicatorsComeAndGo) {
  Ranks ranks(2, [](Board& board, int number) {
    for (int turn = 0; turn < 3; ++turn) {
      Rank first(board, number, 2, 12);
      Rank second(board, number, 2, 12);  // as split gives, beside the first
      first.meet(1 - number, 1 - number);
      first.barrier(4 * turn);
      board.there[number][1 - number] = false;
      first.barrier(4 * turn + 1);
      second.meet(1 - number, 1 - number);
      first.barrier(4 * turn + 2);
      board.there[number][1 - number] = false;
      std::vector<std::byte> out(70000), in(70000);
      for (Rank* rank : {&first, &second}) {
        fill(out.data(), out.size(), 3);
        void* from = rank->register_memory(rank->sender, out.data(), out.size());
        void* into = rank->register_memory(rank->receiver, in.data(), in.size());
        void* request = rank->receive(in.data(), in.size(), 1, into);
        rank->finish(rank->send(out.data(), out.size(), 1, from));
        rank->finish(request);
        compare(in.data(), in.size(), 3);
        rank->must(rank->table->deregister(rank->sender, from), "deregMr");
        rank->must(rank->table->deregister(rank->receiver, into), "deregMr");
        rank->barrier(16 + 4 * turn + (rank == &first ? 2 : 3));
        rank->leave();
      }
    }
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

// NCCL's service thread connects and registers while its progress thread moves bytes.
TEST_F(NcclUse, ConnectingAndRegisteringGoOnBesideTheTraffic) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 12);
    rank.meet(1 - number, 1 - number);
    std::string wrong;
    std::thread service([&] {
      try {
        for (int turn = 2; turn < 6; ++turn) {
          Rank other(board, number, 2, turn % 2 == 0 ? 12 : 11);
          other.meet(1 - number, turn, turn);
          std::vector<std::byte> out(30000), in(30000);
          fill(out.data(), out.size(), 5);
          void* from = other.register_memory(other.sender, out.data(), out.size());
          void* into = other.register_memory(other.receiver, in.data(), in.size());
          void* receiving = other.receive(in.data(), in.size(), 1, into);
          other.finish(other.send(out.data(), out.size(), 1, from));
          other.finish(receiving);
          compare(in.data(), in.size(), 5);
          other.must(other.table->deregister(other.sender, from), "deregMr");
          other.must(other.table->deregister(other.receiver, into), "deregMr");
          other.leave();
        }
      } catch (const std::exception& error) {
        wrong = error.what();
      }
    });
    std::vector<std::byte> out(8192), in(8192);
    void* from = rank.register_memory(rank.sender, out.data(), out.size());
    void* into = rank.register_memory(rank.receiver, in.data(), in.size());
    for (std::uint64_t turn = 0; turn < 400; ++turn) {
      fill(out.data(), out.size(), turn * 2 + static_cast<std::uint64_t>(number));
      void* receiving = rank.receive(in.data(), in.size(), 1, into);
      rank.finish(rank.send(out.data(), out.size(), 1, from));
      rank.finish(receiving);
      compare(in.data(), in.size(), turn * 2 + static_cast<std::uint64_t>(1 - number));
    }
    service.join();
    if (!wrong.empty()) throw Failure(wrong);
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclUse, AFailedInitSaysWhyAndMayBeFinalized) {
  Ranks ranks(1, [](Board&, int) {
    ::setenv("FAIRWAY_SPIN_US", "soon", 1);
    const auto table = open_table(12);
    if (table->init(logger) != abi::kInvalidArgument) throw Failure("init went well");
    if (said().find("FAIRWAY_SPIN_US is \"soon\": it takes a number") == std::string::npos) throw Failure(said());
    if (table->finalize() != abi::kSuccess) throw Failure("finalize");
    ::unsetenv("FAIRWAY_SPIN_US");
    if (table->init(logger) != abi::kSuccess || table->devices() != 1 || table->finalize() != abi::kSuccess)
      throw Failure("the second init: " + said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclUse, Ll128IsRefusedWhereItsLinesWouldTear) {
  Ranks ranks(1, [](Board&, int) {
    ::setenv("NCCL_PROTO", "Simple,LL128", 1);
    const auto table = open_table(12);
    if (table->init(logger) != abi::kInvalidArgument) throw Failure("init went well");
    if (said().find("NCCL_PROTO is \"Simple,LL128\"") == std::string::npos) throw Failure(said());
    ::setenv("NCCL_PROTO", "^LL128", 1);
    if (table->init(logger) != abi::kSuccess || table->finalize() != abi::kSuccess) throw Failure(said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclUse, RailsAreDevicesThatNcclMayFuse) {
  Ranks ranks(1, [](Board&, int) {
    ::setenv("FAIRWAY_RAILS", "lo", 1);
    ::setenv("FAIRWAY_TRANSPORTS", "tcp", 1);
    (void)open_table(12);
    void* library = ::dlopen(FAIRWAY_NCCL_PLUGIN, RTLD_NOW);
    const auto& table = *static_cast<const abi::TableV12*>(::dlsym(library, "ncclNetPlugin_v12"));
    void* context = nullptr;
    abi::PropertiesV12 device{};
    if (table.init(&context, 1, nullptr, logger, nullptr) != abi::kSuccess ||
        table.properties(0, &device) != abi::kSuccess || std::string(device.name) != "fairway:lo" || device.rail != 0)
      throw Failure("the rail: " + said());
    abi::VirtualDevice<8> parts{1, {0}};
    int fused = -1, count = 0;
    if (table.make_virtual(&fused, &parts) != abi::kSuccess || fused != 1 || table.devices(&count) != abi::kSuccess ||
        count != 2 || table.properties(1, &device) != abi::kSuccess || device.parts.count != 1 ||
        device.parts.devices[0] != 0)
      throw Failure("the fused device: " + said());
    parts.devices[0] = 5;
    if (table.make_virtual(&fused, &parts) != abi::kInvalidArgument || table.properties(7, &device) == abi::kSuccess)
      throw Failure("there is no device 5 or 7");
    (void)table.finalize(context);
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

// NCCL knows a fused device by its number, also in a communicator that it makes after it has ended all others. Where it
// counts the devices instead, it begins anew.
TEST_F(NcclUse, FusedDevicesOutliveTheLastCommunicatorUntilNcclCounts) {
  Ranks ranks(1, [](Board&, int) {
    ::setenv("FAIRWAY_RAILS", "lo", 1);
    ::setenv("FAIRWAY_TRANSPORTS", "tcp", 1);
    (void)open_table(12);
    void* library = ::dlopen(FAIRWAY_NCCL_PLUGIN, RTLD_NOW);
    const auto& table = *static_cast<const abi::TableV12*>(::dlsym(library, "ncclNetPlugin_v12"));
    void* context = nullptr;
    abi::PropertiesV12 device{};
    abi::VirtualDevice<8> parts{1, {0}};
    int fused = -1, count = 0;
    const auto must = [](bool holds, const char* what) {
      if (!holds) throw Failure(std::string(what) + ": " + said());
    };
    const auto init = [&] { must(table.init(&context, 1, nullptr, logger, nullptr) == abi::kSuccess, "init"); };
    init();
    must(table.make_virtual(&fused, &parts) == abi::kSuccess && fused == 1, "makeVDevice");
    must(table.finalize(context) == abi::kSuccess, "finalize");
    init();
    must(table.properties(1, &device) == abi::kSuccess && device.parts.count == 1, "the fused device again");
    must(table.devices(&count) == abi::kSuccess && count == 2, "both");
    must(table.finalize(context) == abi::kSuccess, "finalize");
    init();
    must(table.devices(&count) == abi::kSuccess && count == 1, "the rail alone");
    must(table.make_virtual(&fused, &parts) == abi::kSuccess && fused == 1, "makeVDevice anew");
    must(table.finalize(context) == abi::kSuccess, "finalize");
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclUse, AHandleOfAnotherHostOrPluginIsRefusedWithTheRemedy) {
  Ranks ranks(1, [](Board& board, int number) {
    Rank rank(board, number, 1, 12);
    void *listener = nullptr, *sender = nullptr;
    HandleBytes handle{};
    if (rank.table->connect(handle, &sender) != abi::kInvalidArgument) throw Failure("zeros were taken");
    rank.must(rank.table->listen(handle, &listener), "listen");
    handle[16] ^= std::byte{1};  // of the host's number
    if (rank.table->connect(handle, &sender) != abi::kRemoteError) throw Failure("another host's was taken");
    if (said().find("set FAIRWAY_LISTEN") == std::string::npos) throw Failure(said());
    rank.must(rank.table->close_listener(listener), "closeListen");
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

// Its hello came and nobody has accepted it.
TEST_F(NcclUse, WhoWaitsAtAListenerThatClosesIsTold) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 12);
    if (number == 0) {
      void *closes = nullptr, *stays = nullptr, *receiver = nullptr;
      rank.must(rank.table->listen(board.handles[0][0], &closes), "listen");
      rank.must(rank.table->listen(board.handles[0][1], &stays), "listen");
      board.there[0][0] = true;
      rank.until("the second connection", [&] {
        rank.must(rank.table->accept(stays, &receiver), "accept");
        return receiver != nullptr;
      });
      rank.must(rank.table->close_listener(closes), "closeListen");
      rank.until("the other's end", [&] {
        void* nobody = nullptr;
        rank.must(rank.table->accept(stays, &nobody), "accept");  // what drives the engine
        return board.there[1][0].load();
      });
      return rank.leave();
    }
    rank.until("the handles", [&] { return board.there[0][0].load(); });
    void* waits = nullptr;
    for (int i = 0; i < 2; ++i) {
      HandleBytes theirs = board.handles[0][i];
      rank.sender = nullptr;
      rank.until("connecting", [&] {
        rank.must(rank.table->connect(theirs, &rank.sender), "connect");
        return rank.sender != nullptr;
      });
      if (i == 0) waits = rank.sender;
    }
    void* request = nullptr;
    std::byte byte{};
    void* from = rank.register_memory(waits, &byte, 1);
    rank.until("the refusal",
               [&] { return rank.table->send(waits, &byte, 1, 0, from, &request) == abi::kRemoteError; });
    board.there[1][0] = true;
    rank.must(rank.table->close_sender(waits), "closeSend");
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_F(NcclUse, WhoConnectsToAListenerThatIsGoneIsTold) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 12);
    if (number == 0) {
      void* listener = nullptr;
      rank.must(rank.table->listen(board.handles[0][1], &listener), "listen");
      rank.must(rank.table->close_listener(listener), "closeListen");
      rank.must(rank.table->listen(board.handles[0][0], &listener), "listen");
      board.there[0][1] = true;
      void* nobody = nullptr;
      rank.until("the other's end", [&] {
        rank.must(rank.table->accept(listener, &nobody), "accept");
        return board.there[1][0].load();
      });
      return rank.leave();
    }
    rank.until("a handle", [&] { return board.there[0][1].load(); });
    HandleBytes theirs = board.handles[0][1];
    void* request = nullptr;
    std::byte byte{};
    rank.until("connecting", [&] {
      rank.must(rank.table->connect(theirs, &rank.sender), "connect");
      return rank.sender != nullptr;
    });
    void* from = rank.register_memory(rank.sender, &byte, 1);
    rank.until("the refusal",
               [&] { return rank.table->send(rank.sender, &byte, 1, 0, from, &request) == abi::kRemoteError; });
    board.there[1][0] = true;
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
