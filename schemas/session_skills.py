"""Session skills: reusable instructions distilled from a session, an output kind of its own.

They lie beside the memories, not among them, and are written only where the policy switches them
on, so they are no type of the registry and no file can replace them.
"""

from __future__ import annotations

from typing import Final

from schemas.types import Field, MemoryType, MergeOp

SESSION_SKILLS: Final = MemoryType(
    name="session_skills",
    description=(
        "A reusable instruction distilled from work done in this conversation, for a task that is"
        " likely to come up again. Write one only when the conversation shows a way that worked."
    ),
    directory="viking://user/{user_space}/skills",
    filename_template="{skill_name}.md",
    content_template=(
        "# {skill_name}\n\n{description}\n\n"
        "## When to use\n{when_to_use}\n\n## Steps\n{steps}\n\n## Pitfalls\n{pitfalls}"
    ),
    fields=(
        Field(
            "skill_name",
            description='A short kebab-case name of the task: "release-python-package".',
            merge_op=MergeOp.IMMUTABLE,
        ),
        Field("description", description="What the skill achieves, in one sentence."),
        Field("when_to_use", description="The requests or circumstances that call for it."),
        Field("steps", description="Numbered steps that someone without this conversation can follow."),
        Field("pitfalls", description="What went wrong or nearly did, and how to avoid it; one a line."),
    ),
)
