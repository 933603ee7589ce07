// The client for Node: gRPC over HTTP/2. For browsers see web.ts.
import type { Interceptor } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { readWay } from "./address.js";
import { BaseClient } from "./client.js";
import type { Identity } from "./connection.js";
import { refuseUnknown } from "./plain.js";

export * from "./api.js";

export interface ClientOptions extends Identity {
  /** `host:port`, or `https://host:port` for TLS; `127.0.0.1:7433` if it is not given. */
  address?: string | undefined;
  /** PEM file of the authority of the server's certificate, in place of those that Node trusts; switches TLS on. */
  caFile?: string | undefined;
  /** PEM files of the caller's certificate and its key. */
  certFile?: string | undefined;
  keyFile?: string | undefined;
  /** Interceptors of Connect around each attempt, for example for traces. */
  interceptors?: Interceptor[];
}

/**
 * Calls one server as one user, from Node.
 *
 * Options that are not given come from RUNEKEEP_ADDRESS, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_API_KEY,
 * RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and RUNEKEEP_KEY_FILE. Throws TypeError for an unknown option and for settings that cannot be used, such
 * as a key that a network would carry in plain text.
 */
export class Client extends BaseClient {
  readonly #sessions: Http2SessionManager;

  constructor(options: ClientOptions = {}) {
    const { env } = process;
    const { account, user, apiKey = env["RUNEKEEP_API_KEY"], timeoutMs, interceptors = [], ...way } = options;
    const { address, caFile, certFile, keyFile, ...rest } = way;
    refuseUnknown(rest, "Client");
    const { url, tls } = readWay({
      address: address ?? env["RUNEKEEP_ADDRESS"],
      apiKey,
      caFile: caFile ?? env["RUNEKEEP_CA_FILE"],
      certFile: certFile ?? env["RUNEKEEP_CERT_FILE"],
      keyFile: keyFile ?? env["RUNEKEEP_KEY_FILE"],
    });
    const sessionManager = new Http2SessionManager(url, {}, tls);
    super(createGrpcTransport({ baseUrl: url, sessionManager, interceptors }), {
      account: account ?? env["RUNEKEEP_ACCOUNT"],
      user: user ?? env["RUNEKEEP_USER"],
      apiKey,
      timeoutMs,
    });
    this.#sessions = sessionManager;
  }

  /** Closes the connection. Calls in progress fail; a later call opens a new one. */
  close(): void {
    this.#sessions.abort();
  }
}
