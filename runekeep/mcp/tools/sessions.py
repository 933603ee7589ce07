"""Tools that turn a conversation into memory."""

from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, ConfigDict, Field

from runekeep import Message, TextPart
from runekeep.client.sessions.messages import RoleName, split_calls
from runekeep.client.tasks.results import Task
from runekeep.mcp.budget import fit_lines
from runekeep.mcp.tools.toolbox import ADDS, READS, Toolbox, add_tool


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: RoleName
    text: str


class SessionTools(Toolbox):
    """Commit, task status."""

    def add_to(self, server: MCPServer) -> None:
        add_tool(server, self.session_commit, ADDS)
        add_tool(server, self.task_status, READS)

    async def session_commit(
        self,
        session: str,
        context: Context,
        # The schema of the tool shows the default; nothing changes the list.
        messages: Annotated[list[ChatMessage], Field(description="Added before the commit")] = [],  # noqa: B006
    ) -> str:
        """Turn a conversation into memories, in the background."""
        async with self._calling(context) as client:
            handle = client.session(session)
            said = [Message(one.role, [TextPart(one.text)]) for one in messages]
            for call in split_calls(said):
                await handle.add_messages(call)
            commit = await handle.commit()
        if commit.status == "skipped":
            return "There was nothing to commit."
        return f"Committed. Task {commit.task_id} extracts memories; see task_status."

    async def task_status(self, task_id: str, context: Context) -> str:
        """Say how far a commit is, and what it remembered."""
        async with self._calling(context) as client:
            task = await client.get_task(task_id)
            lines = [_status_line(task)]
            if task.result and task.status == "completed":
                changes = (await client.memory_diff(task.archive_uri)).operations
                lines += [f"- added: {change.uri}" for change in changes.adds]
                lines += [f"- updated: {change.uri}" for change in changes.updates]
                lines += [f"- deleted: {change.uri}" for change in changes.deletes]
        return fit_lines(lines, self._budget, "({} more changes have no room.)")


def _status_line(task: Task) -> str:
    line = f"Task {task.task_id} is {task.status}"
    if task.result:
        line += f", {task.result.outcome}"
    if task.waiting_for:
        line += f", waiting for {task.waiting_for}"
    if task.error:
        line += f": {task.error.message}"
    return f"{line}."
