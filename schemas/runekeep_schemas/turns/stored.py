"""Names and tags of stored turn memory, so that it can be read by tag."""

from typing import Final

from runekeep_schemas.turns.fingerprint import Fingerprint, normal_key

FINGERPRINT: Final = "artifact:turn.fingerprint.v1"
REACTION: Final = "artifact:turn.log.reaction"
ACTIVE_SET: Final = "conversation.active_set.v1"
BUCKET: Final = "conversation.memory.bucket.v1"
KINDS: Final = (FINGERPRINT, REACTION, ACTIVE_SET, BUCKET)

ASSISTANT_SIGNAL: Final = "assistant_signal"


def turn_tag(turn_id: str) -> str:
    return f"turn:{turn_id}"


def signal_tag(key: str) -> str:
    """Returns the tag of fingerprints with an assistant signal of that key."""
    return f"{ASSISTANT_SIGNAL}:{normal_key(key)}"


def bucket_tag(bucket_id: str) -> str:
    return f"mem:bucket:{bucket_id}"


def fingerprint_tags(fingerprint: Fingerprint) -> tuple[str, ...]:
    # A key without a letter of a-z or a digit has no normal form, and so no tag of its own.
    signals = [signal_tag(one.key) for one in fingerprint.assistant_signals if normal_key(one.key)]
    own = [ASSISTANT_SIGNAL] if fingerprint.assistant_signals else []
    return tuple(dict.fromkeys((FINGERPRINT, turn_tag(fingerprint.turn_id), *own, *signals)))


def reaction_tags(turn_id: str, origin: str) -> tuple[str, ...]:
    return (REACTION, turn_tag(turn_id), f"origin:{origin}")


def bucket_tags(bucket_id: str) -> tuple[str, ...]:
    return (BUCKET, bucket_tag(bucket_id))
