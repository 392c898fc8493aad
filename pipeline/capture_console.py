"""What reaches the terminal of a replay of captured pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.console import progress_to_stderr, say

if TYPE_CHECKING:
    from pipeline.capture.replay_captured import ReplayedCapture


def tell_captured(done: ReplayedCapture) -> None:
    """What the replay did, and how its answers compare; exits with 1 where some differ."""
    for error, count in sorted(done.unanswered.items()):
        progress_to_stderr(f"{count} of {done.requests} pulls could not be answered: {error}")
    if done.out:
        progress_to_stderr(f"answers written to {done.out}")
    elif done.comparison is None:
        say(f"{done.requests} answers in pull_response, run {done.run_id}")
    if done.comparison is not None:
        for line in done.comparison.told():
            say(line)
        if done.comparison.differ:
            raise SystemExit(1)
