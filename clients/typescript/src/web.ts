// The client for browsers, and for other runtimes with `fetch`: the Connect protocol, which `runekeep http` serves.
import type { Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { BaseClient } from "./client.js";
import type { Identity } from "./connection.js";
import { refuseUnknown } from "./plain.js";
import { refusePlainKey } from "./plain-key.js";

export * from "./api.js";

export interface ClientOptions extends Identity {
  /** Where `runekeep http` listens, such as `http://127.0.0.1:7483`. */
  baseUrl: string;
  /** In place of the global one. */
  fetch?: typeof globalThis.fetch;
  /** Interceptors of Connect around each attempt, for example for traces. */
  interceptors?: Interceptor[];
}

/**
 * Calls one server as one user, from a web page or a runtime with `fetch`, through `runekeep http`.
 *
 * Throws TypeError for a key that a network would carry in plain text.
 */
export class Client extends BaseClient {
  constructor(options: ClientOptions) {
    const { baseUrl, fetch, interceptors = [], account, user, apiKey, timeoutMs, ...rest } = options;
    refuseUnknown(rest, "Client");
    refusePlainKey(baseUrl, apiKey);
    const transport = createConnectTransport({ baseUrl, useBinaryFormat: true, interceptors, ...(fetch && { fetch }) });
    super(transport, { account, user, apiKey, timeoutMs });
  }
}
