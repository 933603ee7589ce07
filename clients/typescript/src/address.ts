// How a server is reached from Node: plain or over TLS.
import { readFileSync } from "node:fs";
import type { SecureClientSessionOptions } from "node:http2";
import { createSecureContext } from "node:tls";
import { refusePlainKey } from "./plain-key.js";

const DEFAULT_ADDRESS = "127.0.0.1:7433";

interface Settings {
  address: string | undefined;
  apiKey: string | undefined;
  caFile: string | undefined;
  certFile: string | undefined;
  keyFile: string | undefined;
}

/** Throws TypeError for an address or for files that cannot be used. */
export function readWay(settings: Settings): { url: string; tls: SecureClientSessionOptions } {
  const { apiKey, caFile, certFile, keyFile } = settings;
  const address = settings.address || DEFAULT_ADDRESS;
  const isSecure = address.startsWith("https://") || Boolean(caFile);
  const target = address.replace(/^(https:|dns:\/)?\/\//, "").replace(/\/$/, "");
  if (!(/^([\w.-]+|\[[\da-fA-F:.]+\]):\d+$/.test(target) || (address.startsWith("https://") && /^[\w.-]+$/.test(target)))) {
    throw new TypeError(
      `${JSON.stringify(address)} is no address of a server: write host:port, or https://host:port for TLS ` +
        "(address, RUNEKEEP_ADDRESS)",
    );
  }
  if (Boolean(certFile) !== Boolean(keyFile)) {
    throw new TypeError("a certificate and its key go together: give both certFile and keyFile");
  }
  if (certFile && !isSecure) {
    throw new TypeError(`a client certificate is shown over TLS only: write https://${target}, or give caFile`);
  }
  const url = `${isSecure ? "https" : "http"}://${target}`;
  refusePlainKey(url, apiKey, "or give caFile");
  const tls = isSecure
    ? { ...read("ca", caFile), ...read("cert", certFile), ...read("key", keyFile) }
    : {};
  try {
    createSecureContext(tls);
  } catch (failed) {
    throw new TypeError(`no TLS with ${[caFile, certFile, keyFile].filter(Boolean).join(", ")}: ${reasonOf(failed)}`);
  }
  return { url, tls };
}

function read(name: string, file: string | undefined): Record<string, Buffer> {
  if (!file) return {};
  try {
    return { [name]: readFileSync(file) };
  } catch (failed) {
    throw new TypeError(`${file} cannot be read: ${reasonOf(failed)}`);
  }
}

function reasonOf(failed: unknown): string {
  return failed instanceof Error ? failed.message : String(failed);
}
