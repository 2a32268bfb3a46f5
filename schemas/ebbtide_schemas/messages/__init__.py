"""Chat messages as the world writes them, to segments and back; and whole transcripts to steps."""

from ebbtide_schemas.messages.chat import message_of, segment_of, segments_of
from ebbtide_schemas.messages.transcripts import Transcript, parse_transcript_line, steps_of_transcript

__all__ = ["Transcript", "message_of", "parse_transcript_line", "segment_of", "segments_of", "steps_of_transcript"]
