#pragma once

#include "collectives/gpu/device/all_to_allv.cuh"
#include "collectives/gpu/device/reduce.cuh"
#include "collectives/gpu/device/send_recv.cuh"

// What a block of a further kernel does. These stand apart from those of work.h, so that none of them takes time or
// registers there. F: how rows travel. docs/collective-algorithms.md has it as a table.
namespace fairway::collectives::gpu {

// As run_lines() of work.h, whose kernels stay the code that was measured: by this they would be longer.
template <class H, class Run>
FAIRWAY_IN_KERNELS void run_warps(Channel<H>& channel, Run run) {
  const Lines& lines = channel.lines();
  if (channel.block() >= lines.blocks) return;
  bool good = true;
  H::each_warp(lines.warps, [&](unsigned warp) { good = good && run(warp); });
  H::let_next_begin();       // nothing is waited for any more
  (void)channel.any(!good);  // all are done with it
}

// T: what elements are, if they are combined; else bytes.
template <class T, class H, class F>
FAIRWAY_IN_KERNELS void run_further(const FurtherCall& further, unsigned block) {
  BlocksChannel<H> channel(further, block);
  if (!channel.enter()) return;
  if constexpr (kCombines<T>) {
    run_warps(static_cast<Channel<H>&>(channel),
              [&](unsigned warp) { return SumWarp<T, H, F>(channel, warp, further).run(channel.line_round()); });
    channel.leave();
  } else {
    channel.leave(0, true, run_blocks<F>(channel, further));
  }
}

template <class H, class F>
FAIRWAY_IN_KERNELS void run_messages(const MessagesCall& all, unsigned block) {
  unsigned nth = 0;
  while (nth < all.count && block >= all.each[nth].call.blocks) block -= all.each[nth++].call.blocks;
  if (nth == all.count) return;
  const MessageCall& message = all.each[nth];
  Channel<H> channel(message.call, block);
  if (!channel.enter()) return;
  run_warps(channel,
            [&](unsigned warp) { return MessageWarp<H, F>(channel, warp, message).run(channel.line_round()); });
  channel.leave();
}

}  // namespace fairway::collectives::gpu
