"""A LangGraph graph with memory: recall, answer, append. Needs `runekeep up`, an OpenAI-compatible API in
OPENAI_BASE_URL and its key in OPENAI_API_KEY."""

import asyncio
import os
import sys

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from openai import AsyncOpenAI

from runekeep import AsyncClient
from runekeep.frameworks.langgraph import Memory, MemoryState, append_node, recall_node


async def answer(state: MemoryState) -> dict[str, list[AIMessage]]:
    system = f"You are a gardener.\n\n{state['memory']}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": state["messages"][-1].text}]
    made = await AsyncOpenAI().chat.completions.create(model=os.environ.get("MODEL", "gpt-5-mini"), messages=messages)
    return {"messages": [AIMessage(made.choices[0].message.content)]}


async def main(question: str) -> None:
    async with AsyncClient(user="robin") as client:
        memory = Memory(client)
        graph = StateGraph(MemoryState)
        for name, node in (("recall", recall_node(memory)), ("answer", answer), ("append", append_node(memory))):
            graph.add_node(name, node)
        for one, next_one in ((START, "recall"), ("recall", "answer"), ("answer", "append"), ("append", END)):
            graph.add_edge(one, next_one)
        state = {"messages": [("user", question)]}
        done = await graph.compile(InMemorySaver()).ainvoke(state, {"configurable": {"thread_id": "garden"}})
        print(done["messages"][-1].text)


asyncio.run(main(" ".join(sys.argv[1:])))
