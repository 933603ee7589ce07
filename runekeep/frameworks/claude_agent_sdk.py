"""Memory for the Claude Agent SDK: a hook that recalls for each prompt, and one that appends what was said after each
answer. The SDK drives Claude Code, which writes a transcript of each session and tells hooks where it is.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookEvent, HookInput, HookJSONOutput

from runekeep import TextPart
from runekeep.frameworks.memory import Memory, SpokenText
from runekeep.injection.block import strip_memory
from runekeep.transcripts.claude_code import read_claude_code

__all__ = ["Memory", "memory_hooks"]

TRIES = 20
PAUSE_SECONDS = 0.05

log = logging.getLogger("runekeep.frameworks")


def memory_hooks(memory: Memory, session_id: str = "") -> dict[HookEvent, list[HookMatcher]]:
    """Returns hooks for `ClaudeAgentOptions(hooks=...)`. `session_id`: the session of Runekeep; empty: that of Claude
    Code. Tool calls and their results are left out."""
    appended: dict[str, int] = {}

    async def recall(given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        prompt: Any = given.get("prompt")
        known = await memory.recall(strip_memory(prompt) if isinstance(prompt, str) else "")
        if not known:
            return {}
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": known}}

    async def append(given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        path = given["transcript_path"]
        try:
            spoken = await _whole_transcript(path, given.get("last_assistant_message"))
        except OSError as error:
            log.warning("the transcript cannot be read: %s", error.strerror)
            return {}
        new = spoken[appended.get(path, 0) :]
        # What was not appended is handed in with the next answer.
        if new and await memory.append(session_id or given["session_id"], new):
            appended[path] = len(spoken)
        return {}

    return {"UserPromptSubmit": [HookMatcher(hooks=[recall])], "Stop": [HookMatcher(hooks=[append])]}


async def _whole_transcript(path: str, last: Any) -> list[SpokenText]:
    """Returns what was said, once the transcript has the answer that the hook was told of: Claude Code writes it a
    moment after it calls the hook. Without it after some tries, the answer is handed in with the next one."""
    spoken: list[SpokenText] = []
    for _ in range(TRIES):
        spoken = await asyncio.to_thread(_spoken_texts, path)
        if not isinstance(last, str) or (spoken and spoken[-1].text.endswith(last.strip())):
            break
        await asyncio.sleep(PAUSE_SECONDS)
    return spoken


def _spoken_texts(transcript: str) -> list[SpokenText]:
    try:
        with Path(transcript).expanduser().open(encoding="utf-8", errors="replace") as lines:
            messages = read_claude_code(lines)
    except FileNotFoundError:
        # It is still to be written.
        return []
    texts = (
        SpokenText(one.role, "\n".join(part.text for part in one.parts if isinstance(part, TextPart)), one.id)
        for one in messages
    )
    return [one for one in texts if one.text]
