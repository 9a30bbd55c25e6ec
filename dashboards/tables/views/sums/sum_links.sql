-- Threads of one task to those of another in an epoch: sums over the windows that were recorded.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- from_task | string |  | task that sent
-- to_task | string |  | task that received
-- tuples | bigint | rows | rows
-- bytes | bigint | bytes | content of the rows, where they went over a channel
-- frames | bigint | frames | frames in which they went
-- buffer_s | double | s | times of the frames in the sender's buffer
-- channel_s | double | s | times of the frames from there into the receiver's queue
select
  run,
  epoch,
  from_task,
  to_task,
  cast(sum(tuples) as bigint) as tuples,
  cast(sum(bytes) as bigint) as bytes,
  cast(sum(frames) as bigint) as frames,
  sum(buffer_latency_s * frames) as buffer_s,
  sum(channel_latency_s * frames) as channel_s
from links
group by run, epoch, from_task, to_task
