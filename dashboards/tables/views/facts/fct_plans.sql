-- One plan: what it was for, how it came into force, and the slots that it planned and that were held meanwhile.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number under which it came into force
-- plan | string |  | its id
-- decided | timestamp |  | when it was decided on (UTC)
-- at_s | double | s | since the run began
-- reason | string |  | the rule that applied
-- rate_tps | double | rows/s | rate that it is for
-- predicted_tps | double | rows/s | rate that it was predicted to carry
-- limited_by | string |  | task that was predicted to saturate first
-- moves | bigint | threads | threads that start or leave
-- enacted_s | double | s | from the decision until it was in force
-- pause_ms | double | ms | from the order to switch until every sender had
-- slots_planned | bigint | slots | with threads, by the plan
-- slots_held | double | slots | with threads, mean over its windows
-- slots_held_most | bigint | slots | different ones with threads in its time, those of threads that still leave too
-- text | string |  | the decision in a sentence
with came as (
  select run, enacted_epoch as epoch, max(enacted_s) as enacted_s, max(pause_ms) as pause_ms
  from decisions
  where enacted_epoch is not null
  group by run, enacted_epoch
),
by_vm as (
  select
    run,
    epoch,
    vm,
    sum(case when threads > 0 then window_s else 0e0 end) as held_s,
    avg(window_s) * count(distinct time) as seconds,
    count(distinct case when threads > 0 then slot end) as slots
  from fct_slot_seconds
  group by run, epoch, vm
),
held as (
  select run, epoch, sum(held_s) / nullif(max(seconds), 0) as slots_held, cast(sum(slots) as bigint) as slots_held_most
  from by_vm
  group by run, epoch
)
select
  d.run,
  d.plan_epoch as epoch,
  d.plan,
  d.time as decided,
  (unix_micros(d.time) - unix_micros(r.begun)) / 1e6 as at_s,
  d.trigger as reason,
  d.rate_tps,
  d.predicted_tps,
  d.limited_by,
  d.moves,
  c.enacted_s,
  c.pause_ms,
  d.slots as slots_planned,
  h.slots_held,
  h.slots_held_most,
  d.text
from decisions d
join runs r on r.run = d.run
left join came c on c.run = d.run and c.epoch = d.plan_epoch
left join held h on h.run = d.run and h.epoch = d.plan_epoch
where d.plan_epoch is not null
