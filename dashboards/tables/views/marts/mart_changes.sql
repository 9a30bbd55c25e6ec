-- What changed from a run to the next one of the same topology: a row for each figure of mart_runs.
--
-- run | string |  | topology/run
-- previous_run | string |  | the run of this topology that began before it; null: it is the first
-- latest | boolean |  | no later run of this topology is there
-- metric | string |  | which figure
-- unit | string |  | its unit
-- value | double | as said | in this run
-- previous | double | as said | in the previous one
-- change | double | as said | value − previous
-- ratio | double |  | value / previous
with names as (
  select 'offered_tps' as metric, 'rows/s' as unit
  union all select 'acked_tps' as metric, 'rows/s' as unit
  union all select 'lost' as metric, 'rows' as unit
  union all select 'dead_lettered' as metric, 'rows' as unit
  union all select 'replayed' as metric, 'rows' as unit
  union all select 'duplicates' as metric, 'rows' as unit
  union all select 'p50_s' as metric, 's' as unit
  union all select 'p95_s' as metric, 's' as unit
  union all select 'p99_s' as metric, 's' as unit
  union all select 'max_s' as metric, 's' as unit
  union all select 'plans' as metric, 'plans' as unit
  union all select 'slots_held' as metric, 'slots' as unit
  union all select 'slot_hours' as metric, 'slot·h' as unit
  union all select 'usd' as metric, 'USD' as unit
  union all select 'cpu_error' as metric, 'slots' as unit
  union all select 'unexplained_cpu' as metric, 'slots' as unit
),
figures as (
  select
    m.run,
    n.metric,
    n.unit,
    cast(case n.metric
      when 'offered_tps' then m.offered_tps
      when 'acked_tps' then m.acked_tps
      when 'lost' then m.lost
      when 'dead_lettered' then m.dead_lettered
      when 'replayed' then m.replayed
      when 'duplicates' then m.duplicates
      when 'p50_s' then m.p50_s
      when 'p95_s' then m.p95_s
      when 'p99_s' then m.p99_s
      when 'max_s' then m.max_s
      when 'plans' then m.plans
      when 'slots_held' then m.slots_held
      when 'slot_hours' then m.slot_hours
      when 'usd' then m.usd
      when 'cpu_error' then m.cpu_error
      when 'unexplained_cpu' then m.unexplained_cpu
    end as double) as value
  from mart_runs m
  cross join names n
),
ordered as (
  select
    run,
    lag(run) over (partition by topology order by started, run) as previous_run,
    lead(run) over (partition by topology order by started, run) is null as latest
  from dim_run
)
select
  o.run,
  o.previous_run,
  o.latest,
  f.metric,
  f.unit,
  f.value,
  b.value as previous,
  f.value - b.value as change,
  f.value / nullif(b.value, 0) as ratio
from ordered o
join figures f on f.run = o.run
left join figures b on b.run = o.previous_run and b.metric = f.metric
