/**
 * An id for one mutation, a UUID of version 7 (RFC 9562); repeats of the mutation use the same one.
 *
 * Ids that are made at about the same time lie together in the server's index.
 */
export function newRequestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  new DataView(bytes.buffer).setBigUint64(0, (BigInt(Date.now()) << 16n) | BigInt((bytes[6]! << 8) | bytes[7]!));
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const text = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return text.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
