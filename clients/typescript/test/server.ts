// Clients of the real server that tests/languages/test_typescript.py starts, by both ways.
import { BaseClient } from "../src/client.js";
import { Client } from "../src/index.js";
import { Client as WebClient } from "../src/web.js";

function variable(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run the tests with make test-typescript`);
  return value;
}

export function address(): string {
  return variable("RUNEKEEP_TEST_ADDRESS");
}

/** By the name of each way, a client for a user. */
export const ways: Record<string, (user: string) => BaseClient> = {
  gRPC: (user) => new Client({ address: address(), user }),
  Connect: (user) => new WebClient({ baseUrl: variable("RUNEKEEP_TEST_HTTP"), user }),
};

let users = 0;

/** A user that no other test has. */
export function newUser(): string {
  users += 1;
  return `user-${process.pid}-${users}`;
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}
