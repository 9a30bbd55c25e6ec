"""The stories of protocol.md that concern stateless tasks, sources and re-plans: each planted in the real
classes and caught by the simulation, while the sound code passes the same seeds."""

from __future__ import annotations

import pytest
from planted_stories import STORIES, Story

from controller.simulation.world import World


def first_caught(story: Story, planted: bool) -> tuple[int | None, str]:
    """(the first seed that fails, how); (None, "") when none does."""
    for seed in range(story.seeds):
        with pytest.MonkeyPatch.context() as patch:
            if story.both is not None:
                story.both(patch)
            if planted:
                story.plant(patch)
            try:
                World(seed, story.options).run()
            except AssertionError as error:
                return seed, str(error)
    return None, ""


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_planted_story_is_caught_and_the_sound_code_is_not(name: str) -> None:
    story = STORIES[name]
    seed, how = first_caught(story, planted=True)
    assert seed is not None, f"{name}: not caught in {story.seeds} seeds"
    assert any(word in how for word in story.words), f"{name}: caught for another reason: {how}"
    with pytest.MonkeyPatch.context() as patch:
        if story.both is not None:
            story.both(patch)
        for sound in range(seed + 1):
            World(sound, story.options).run()
