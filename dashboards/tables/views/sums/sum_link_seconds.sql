-- An epoch: for how long anything went over any link, each second once, however many links there were.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- seconds | double | s | in which anything went
with seconds as (
  select run, epoch, time, max(window_s) as window_s from links group by run, epoch, time
)
select run, epoch, sum(window_s) as seconds from seconds group by run, epoch
