// An agent of the Vercel AI SDK with memory. Needs `runekeep up`, an OpenAI-compatible API in OPENAI_BASE_URL and its
// key in OPENAI_API_KEY.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText, wrapLanguageModel } from "ai";
import { Client } from "runekeep";
import { memoryMiddleware } from "runekeep/ai-sdk";

const { MODEL = "gpt-5-mini", OPENAI_API_KEY, OPENAI_BASE_URL = "https://api.openai.com/v1" } = process.env;
const provider = createOpenAICompatible({ name: "openai", baseURL: OPENAI_BASE_URL, apiKey: OPENAI_API_KEY });
const client = new Client({ user: "robin" });

const result = streamText({
  model: wrapLanguageModel({
    model: provider(MODEL),
    middleware: memoryMiddleware({ client, session: "garden" }),
  }),
  instructions: "You are a gardener.",
  prompt: process.argv.slice(2).join(" "),
});
for await (const text of result.textStream) process.stdout.write(text);
console.log();
