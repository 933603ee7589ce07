const LOOPBACK = /^http:\/\/(127(\.\d{1,3}){3}|localhost|\[::1\])(:\d+)?(\/|$)/;

/** Throws TypeError if the key would go over a network for everybody to read, or can be no key. */
export function refusePlainKey(url: string, apiKey: string | undefined, advice = ""): void {
  if (!apiKey) return;
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new TypeError("apiKey holds what can be no key: spaces, or signs that are not ASCII");
  }
  if (!url.startsWith("https://") && !LOOPBACK.test(url)) {
    const target = url.replace(/^http:\/\//, "");
    const also = advice && `, ${advice}`;
    throw new TypeError(`the key would go to ${target} in plain text: write the address as https://${target}${also}`);
  }
}
