"""Session skills: reusable instructions distilled from a session, a separate kind of output.

They are stored beside the memories and written only if the policy enables them. So they are not a type of the registry,
and no type file can replace them.
"""

from __future__ import annotations

from typing import Final

from runekeep_schemas.memory_types.model import Field, MemoryType, MergeOp

WHEN_EXTRACTED: Final = (
    "they are enabled (by the policy, else by the setting `session_skills`), the policy enables `self`, its "
    "`memory_types` is absent or names `session_skills`, and the execution phase has work"
)
"""When session skills are extracted, as text for settings and messages. `runekeep_schemas.policy.resolve` implements
it."""

SESSION_SKILLS: Final = MemoryType(
    name="session_skills",
    description="A way that worked in this conversation, as a reusable instruction for a task likely to come up again.",
    directory="viking://user/{user_space}/skills",
    filename_template="{skill_name}.md",
    max_deletes=2,
    content_template=(
        "# {skill_name}\n\n{description}\n\n"
        "## When to use\n{when_to_use}\n\n## Steps\n{steps}\n\n## Pitfalls\n{pitfalls}"
    ),
    fields=(
        Field(
            "skill_name",
            description='The task as a short kebab-case name: "release-python-package".',
            merge_op=MergeOp.IMMUTABLE,
        ),
        Field("description", description="What it achieves, in one sentence."),
        Field("when_to_use", description="Requests or circumstances that call for it."),
        Field("steps", description="Numbered steps that someone without this conversation can follow."),
        Field("pitfalls", description="What went wrong or nearly did and how to avoid it, one a line."),
    ),
)
