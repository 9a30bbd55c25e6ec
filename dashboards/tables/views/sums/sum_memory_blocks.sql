-- Memory and CPU of a slot over time: at most 48 blocks of one length, cut where another plan comes into force. The first
-- 30 s of a plan are left out: what came with it is there then.
--
-- run | string |  | topology/run
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- epoch | bigint |  | number of the plan that was in force
-- level | bigint |  | a block is 2^level stretches long
-- block | bigint |  | number of the block since 1970
-- n | bigint |  | stretches in it
-- at | double |  | middles of the stretches, summed, in stretches since 1970
-- memory | double | slots | memory held in them, summed
-- cpu | double | slots | CPU used in them, summed
with begun as (
  select run, epoch, min(w) as begin_w from sum_slot_windows group by run, epoch
),
held as (
  select s.run, s.vm, s.slot, s.epoch, s.w, s.memory, s.cpu
  from sum_slot_windows s
  join begun b on b.run = s.run and b.epoch = s.epoch
  join widths d on d.run = s.run
  where s.memory > 0 and s.cpu is not null and (s.w - b.begin_w) * d.window_s >= 30
),
ends as (
  select run, vm, slot, min(w) as first_w, max(w) as last_w from held group by run, vm, slot
),
levels as (
  select e.run, e.vm, e.slot, min(k.level) as level
  from ends e
  cross join (
    values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17), (18), (19),
    (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31), (32)
  ) as k(level)
  where floor(e.last_w / power(2e0, k.level)) - floor(e.first_w / power(2e0, k.level)) < 48
  group by e.run, e.vm, e.slot
),
blocked as (
  select
    h.run,
    h.vm,
    h.slot,
    h.epoch,
    cast(l.level as bigint) as level,
    cast(floor(h.w / power(2e0, l.level)) as bigint) as block,
    h.w,
    h.memory,
    h.cpu
  from held h
  join levels l on l.run = h.run and l.vm = h.vm and l.slot = h.slot
)
select
  run,
  vm,
  slot,
  epoch,
  level,
  block,
  count(*) as n,
  sum(w + 0.5e0) as at,
  sum(memory) as memory,
  sum(cpu) as cpu
from blocked
group by run, vm, slot, epoch, level, block
