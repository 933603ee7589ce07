"""The shortest way through Runekeep. Start `runekeep up` in another terminal first."""

from runekeep import Client, TextPart, ToolPart

with Client() as client:
    session = client.session("quickstart")
    session.add_message("user", [TextPart("I am Robin. I live in Lisbon and I prefer tea to coffee.")])
    session.add_message(
        "assistant",
        [
            TextPart("Let me see how the weather is there."),
            ToolPart("call-1", "weather", input={"city": "Lisbon"}, output="sunny", status="completed", duration_ms=80),
        ],
    )
    result = session.commit()
    print(result.status, result.archive_uri)

    task = client.wait_task(result.task_id, timeout=120)
    print(task.status, task.result and task.result.memories_extracted)

    for found in client.find("What does Robin drink?", limit=3).results:
        print(f"{found.score:.3f}", found.uri)
