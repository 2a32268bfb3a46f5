"""An event in the clear to its records: keyed ids, a header without text, and sealed segments.

It works in strokes. `outline_step` says which keys a step needs, so that those of a whole batch are asked for
at once; `draft_step` and `draft_reward` give id and digest, by which a repeat is known before anything is
sealed; `Draft.seal` makes the records. There is no I/O here but for the keys, which come from the sealer.
"""

from ebbtide_platform.doors.intake.drafts import Draft, Names, People
from ebbtide_platform.doors.intake.outline import Piece, identities, outline_step
from ebbtide_platform.doors.intake.rewards import draft_reward
from ebbtide_platform.doors.intake.steps import draft_step

__all__ = ["Draft", "Names", "People", "Piece", "draft_reward", "draft_step", "identities", "outline_step"]
