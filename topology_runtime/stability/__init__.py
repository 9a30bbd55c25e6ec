"""Does it keep up with what is offered? Pure; the controller and the profiler judge by the same means.

slopes    Theil–Sen and least-squares slopes of noisy series, their intervals by block bootstrap
evidence  what a stretch of a trial shows: growth of latency and queue, rows out per row in; the verdict
trial     the verdict as soon as it is sure, with what it may err by spent over its looks
"""
