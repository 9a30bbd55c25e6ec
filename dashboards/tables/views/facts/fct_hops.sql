-- One edge of the topology in one epoch: what went over it, and what a row spends from the sender's buffer to completion.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- from_task | string |  | sender
-- to_task | string |  | receiver; the same task: rows that it hands on when its keys move
-- pairs | bigint | pairs | of threads between which anything went
-- tuples | bigint | rows | rows
-- bytes | bigint | bytes | content of the rows, where they went over a channel
-- frames | bigint | frames | frames in which they went
-- tuples_tps | double | rows/s | rows over the seconds of the epoch in which anything went over any edge
-- buffer_s | double | s | in the sender's buffer, mean over frames
-- channel_s | double | s | from there into the receiver's queue, mean over frames
-- task_s | double | s | from the queue to completion at the receiver, mean over the rows of its threads
-- hop_s | double | s | the three together
with sent as (
  select
    run,
    epoch,
    from_task,
    to_task,
    count(distinct from_thread * 1000000 + to_thread) as pairs,
    cast(sum(tuples) as bigint) as tuples,
    cast(sum(bytes) as bigint) as bytes,
    cast(sum(frames) as bigint) as frames,
    sum(buffer_latency_s * frames) / nullif(sum(frames), 0) as buffer_s,
    sum(channel_latency_s * frames) / nullif(sum(frames), 0) as channel_s
  from links
  group by run, epoch, from_task, to_task
),
lengths as (
  select run, epoch, sum(window_s) as seconds
  from (select run, epoch, time, max(window_s) as window_s from links group by run, epoch, time) once
  group by run, epoch
),
work as (
  select run, epoch, task, sum(latency_mean_s * tuples_in) / nullif(sum(tuples_in), 0) as task_s
  from samples
  group by run, epoch, task
)
select
  s.run,
  s.epoch,
  s.from_task,
  s.to_task,
  s.pairs,
  s.tuples,
  s.bytes,
  s.frames,
  s.tuples / nullif(l.seconds, 0) as tuples_tps,
  s.buffer_s,
  s.channel_s,
  w.task_s,
  coalesce(s.buffer_s, 0e0) + coalesce(s.channel_s, 0e0) + coalesce(w.task_s, 0e0) as hop_s
from sent s
join lengths l on l.run = s.run and l.epoch = s.epoch
left join work w on w.run = s.run and w.epoch = s.epoch and w.task = s.to_task
