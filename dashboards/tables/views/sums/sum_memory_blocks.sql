-- Memory of a slot over time: at most 48 blocks of one length.
--
-- run | string |  | topology/run
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- level | bigint |  | a block is 2^level stretches long
-- block | bigint |  | number of the block since 1970
-- n | bigint |  | stretches in it
-- at | double |  | middles of the stretches, summed, in stretches since 1970
-- memory | double | slots | memory held in them, summed
with held as (
  select run, vm, slot, w, memory from sum_slot_windows where memory > 0
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
    cast(l.level as bigint) as level,
    cast(floor(h.w / power(2e0, l.level)) as bigint) as block,
    h.w,
    h.memory
  from held h
  join levels l on l.run = h.run and l.vm = h.vm and l.slot = h.slot
)
select run, vm, slot, level, block, count(*) as n, sum(w + 0.5e0) as at, sum(memory) as memory
from blocked
group by run, vm, slot, level, block
